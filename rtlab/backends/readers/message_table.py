"""The messages that rtlab interprets, of TensorRT 7 to 11, TensorRT-RTX and the programs around them: data only.

To add one: a row, before the rows that are more general, as a line belongs to the first row that fits. A title follows
from the pattern in every line that it fits, what may be is said to be so, and a remedy that holds under a condition
states it. A line that no row fits is quoted with its severity, so a doubtful row is better left out.
"""

from __future__ import annotations

import dataclasses

#: Where wordings and remedies come from.
_GUIDE = "NVIDIA's TensorRT documentation, Troubleshooting"
_MEMORY = "NVIDIA's TensorRT documentation, How TensorRT Works, Memory"
_DLA = "NVIDIA's TensorRT documentation, Working with DLA"
_TYPES = "NVIDIA's TensorRT documentation, Accuracy Considerations"
_STRONG = "NVIDIA's TensorRT documentation, Strongly Typed Networks"
_QUANTIZED = "NVIDIA's TensorRT documentation, Working with Quantized Types"
_PLANS = "NVIDIA's TensorRT documentation, Compatibility"
_SHAPES = "NVIDIA's TensorRT documentation, Working with Dynamic Shapes"
_SUPPORT = "NVIDIA's TensorRT documentation, Support Matrix"
_API = "NVIDIA/TensorRT, include/NvInferRuntime.h"
_PARSER = "onnx/onnx-tensorrt, ModelImporter.cpp and operators.md"
_REPORTS = "public reports"
_ORT = "ONNX Runtime's documentation, TensorRT Execution Provider"
_ORT_CODE = "microsoft/onnxruntime, core"
_TORCH = "pytorch/TensorRT, py/torch_tensorrt/dynamo"
_TRTEXEC = "NVIDIA/TensorRT, samples/trtexec"
_TF = "tensorflow/tensorflow, compiler/tf2tensorrt"
_LLM = "NVIDIA/TensorRT-LLM, documentation of trtllm-build"
_DEEPSTREAM = "NVIDIA DeepStream's documentation, Gst-nvinfer"
_TRITON = "triton-inference-server/tensorrt_backend"
_NSIGHT = "NVIDIA Nsight Systems' documentation, Command Line Options"
_CUDA = "NVIDIA's CUDA Runtime API, cudaError"
#: What an error ends.
_BUILD, _PARSE, _LOAD, _RUN = "a build", "parsing", "loading an engine", "an inference"

_FREE_MEMORY = (
    "If the build fails or the engine is too slow: free memory on the GPU, lower the profile's largest shapes, or set "
    "--memPoolSize to what is free."
)
_LOAD_PLUGIN = (
    "Load a library that has it for this TensorRT (trtexec --plugins up to 8.5, --staticPlugins or --dynamicPlugins "
    "from "
    "8.6 on; in Python init_libnvinfer_plugins), or export the model without the operator."
)
_REBUILD = "Build it again with the installed release, or install the one that built it."
_COMPARE = "Compare the outputs; if they differ too much, keep these layers in FP32."
_TRITON_CAUSE = "Where TensorRT refuses a plan, it prints lines of its own."
_TRITON_REMEDY = (
    "See the reason. If a plan is refused, build it with the release of TensorRT in the server's image and on its GPU; "
    "if the configuration is, let config.pbtxt state the plan's own shapes, types and batch."
)
_FOLD = "Fold constants (polygraphy surgeon sanitize --fold-constants)"


@dataclasses.dataclass(frozen=True)
class Message:
    """What one message looks like, and what is known of it.

    ``pattern`` is the shortest that identifies it within a line. Its groups: ``name``, ``operator`` and ``plugin`` are
    names, ``size`` a request of memory with its unit as it is printed, ``reason`` what the program says itself; others
    stand in ``title`` by their names, where ``{names}`` are all names. ``releases`` are those of TensorRT where nothing
    else is said. ``ends`` is what it ends as an error, by its source; whether that happened is for other lines to say.
    ``is_parser`` says that the parser prints the node apart, before the message or in the lines above. ``effect`` is
    what comes of it where that follows from the line.
    """

    id: str
    pattern: str
    title: str
    cause: str
    remedy: str
    releases: str
    source: str
    ends: str = ""
    is_parser: bool = False
    effect: str = ""


#: What stands behind the name of a layer in messages of any release.
_END = r"(?=\.\)|\. In |, try\b| due to |\)(?:\s*$|  )|\.?\s*$)"
_NODE = rf"(?P<name>\{{ForeignNode\[.*?\]\}}|\S.*?){_END}"
#: A layer that a message begins with, behind a bracket, a kind of layer or what a logger writes.
LAYER = r"\(Unnamed Layer\* \d+\) \[[^\]\n]*\]|[^\s(:]+"
_AT = rf"(?:\(|(?:I\w+Layer|ERROR:|\[TRT\]:?|\[E\]|\b\d:) )(?P<name>{LAYER}): ?"

MESSAGES: tuple[Message, ...] = (
    # The builder.
    Message(
        "no-implementation", rf"(?i:could not find any implementation for node) {_NODE}",
        "TensorRT finds no implementation for {names}.",
        "No tactic that the builder tried for it works: each failed, did not fit into memory, or there is none.",
        "If tactics lacked memory: lower the largest shapes, free memory, or raise the workspace (trtexec "
        "--memPoolSize=workspace:MiB) if the GPU has more; else write these nodes in another form or precision, or "
        "build in another release.",
        "7 to 11", _GUIDE, _BUILD,
    ),
    Message(
        "no-runner", r"(?<!\S)(?P<name>\S+) has no runners that implement it",
        "The builder has no runner of {names}.", "TensorRT-RTX lacks some that TensorRT has.",
        "If it is TensorRT-RTX, build with TensorRT; else cut the model before the node and run it elsewhere.",
        "8 to 11 and RTX", "TensorRT-RTX release notes, Limitations", _BUILD,
    ),
    Message(
        "gpu-unsupported", r"Target GPU SM \d+ is not supported by this TensorRT|Error \(Unsupported SM\b",
        "This release of TensorRT does not support the GPU.",
        "A release has kernels for a range of compute capabilities: later ones drop old GPUs, earlier ones lack new "
        "ones; a package for servers with ARM lacks those of Jetson.",
        "Install a release whose support matrix lists the GPU.", "7 to 11", _SUPPORT, _BUILD,
    ),
    Message(
        "gpu-type", r"support requested on hardware without native (?P<type>\w+) support",
        "The hardware has no native support of {type}.", "Layers in that type may run slowly, or in another type.",
        "If the engine is too slow, leave the flag out, or choose a type that the GPU has.", "7 to 10", _SUPPORT,
    ),
    Message(
        "gpu-type", r"Networks with \S+ layers require hardware with (?P<type>\w+) support",
        "Layers of the network require hardware with support of {type}.",
        "The support matrix lists which GPUs have it.",
        "Build for another GPU, or from the model without these Q/DQ pairs.", "8 to 11", _SUPPORT, _BUILD,
    ),
    Message(
        "type-mix", r"(?P<reason>\w+ and \w+ mixed precision is allowed only .*)",
        "These types may not be mixed in this build.", "Where they may, the line says.",
        "If the line names that mode, build a strongly typed network (trtexec --stronglyTyped), or leave one of the "
        "types out.",
        "10", _STRONG, _BUILD,
    ),
    Message(
        "no-output", r"Network must have at least one output",
        "The network has no outputs.",
        "No tensor was marked as one, or a parser that fills the network failed before.",
        "Check what the parser returned and print its errors; else mark an output (mark_output).",
        "7 to 11", _GUIDE, _BUILD,
    ),
    Message(
        "shape-tensor",
        rf"{_AT}(?:an? )?\w+ cannot be used to compute a shape tensor|"
        rf"(?:{_AT.replace('<name>', '<name2>')})?(?P<reason>I\w+Layer applied to shape tensor must .*)",
        "TensorRT does not compute a shape with {names} in this form.",
        "A shape follows from its output. Shapes are computed on the host, by few kinds of layers.",
        f"If the shape is constant: {_FOLD[0].lower()}{_FOLD[1:]}; else export the model with static shapes there.",
        "8 to 11", _SHAPES, _BUILD,
    ),
    Message(
        "if-shapes",
        rf"I\w*ConditionalOutputLayer (?P<name>{LAYER}): (?P<reason>(?i:inputs )?(?i:must have) .*)|"
        rf"(?P<name2>{LAYER}): I\w*ConditionalOutputLayer (?P<reason2>inputs must have .*)",
        "The branches of {names} do not fit together.", "TensorRT takes an If whose branches give outputs that agree.",
        "Fold constants, so that the condition is one, or give both branches outputs of one rank, shape and type.",
        "8.2 to 11", "NVIDIA's TensorRT documentation, Working with Conditionals", "parsing or a build",
    ),
    Message(
        "profile-mismatch",
        r"Dimension mismatch for tensor (?P<name>\S+) and profile \d+\. ?(?P<reason>.*)|"
        r"(?<![^\s(])(?P<name2>[^\s(:]+): (?P<reason2>(?:for dimension number|"
        r"number of dimensions is) .*? profile \d+.*)",
        "The optimization profile does not fit input {names}.",
        "A dimension that the model fixes has one value in a profile too, and as many dimensions.",
        "Give the model's own value for it in --minShapes, --optShapes and --maxShapes, or export the model with that "
        "dimension dynamic.",
        "7 to 11", _SHAPES, _BUILD,
    ),
    Message(
        "weights-count",
        rf"(?:{_AT})?(?P<reason>(?:number of kernel weights does not|(?:kernel|bias) weights has count \d+ but|"
        r"count of \d+ weights in kernel).*)",
        "The weights of {names} are more or fewer than its parameters ask for.",
        "They belong to a network of other sizes, or the program builds another one than it means to.",
        "See whether classes, width and depth of the program are those of the weights.",
        "7 to 11", _REPORTS,
    ),
    Message(
        "shape-conflict",
        rf"(?:{_AT})?(?P<reason>(?:broadcast (?:with incompatible )?dimensions(?: must be conformable)?|"
        r"reshape (?:would change|changes) volume|all concat input tensors must have|"
        r"inputs must have same (?:number of )?dimensions|dimensions not compatible|reshaping failed for tensor|"
        r"\S+ \d+ dimensions must be equal|axis \d+ dimensions|condition\[\d+\] is false)"
        rf"(?:.*?I\w+Layer (?P<name2>{LAYER}): )?.*)",
        "The shapes at {names} do not fit together.",
        "They are those of the model, or follow from the shapes of a profile or of an input.",
        "Run the model in ONNX Runtime with the same input shapes: if it fails as well, export it anew; else fold "
        "constants (polygraphy surgeon sanitize --fold-constants), or give shapes that the model takes.",
        "7 to 11", _SHAPES,
    ),
    Message(
        "profile-values", r"(?P<reason>k(?:MIN|OPT|MAX) values for profile \d+ violate shape constraints.*)",
        "Shapes of an optimization profile do not go through the network.",
        "A layer gets shapes from them that it does not take.",
        "Choose shapes that the model takes in ONNX Runtime.", "8 to 11", _SHAPES,
    ),
    Message(
        "myelin-tactics", r"(?i)autotuner: no tactics to implement operation",
        "The compiler of fused regions finds no kernel for one operation.", "Its autotuner reports no tactics for it.",
        "Change the precision of that operation, split the region by marking a tensor as output, or take another "
        "release.",
        "8.6 to 11", _REPORTS,
    ),
    Message(
        "bool-layer", r"(?:\(|\[)?(?P<name>\[[^\]\n]+\]|[^\s()]+?) ?requires (?P<reason>bool (?:or uint8 )?I/O but .*)",
        "Outside a fused region, {names} does not run with this type.",
        "It needs boolean or uint8 tensors, and the compiler of fused regions does not take it.",
        "Write it with casts around (Cast to INT32, the layer, Cast back).", "8 to 11", _REPORTS,
    ),
    Message(
        "insufficient-memory",
        r"(?:UNSUPPORTED_STATE:? ?)?Skipping tactic (?:\w+ )?due to insuff?icient memory on requested size of "
        r"(?P<size>\d+(?: ?(?:[kMG]i?B|bytes)\b)?)(?: detected for tactic (?P<tactic>\w+))?",
        "The builder skips tactics because memory is short.",
        "A tactic asked for more memory than is free, or than it may take; others may do.",
        _FREE_MEMORY, "8.2 to 11", _MEMORY,
    ),
    Message(
        "insufficient-memory",
        r"Tactic Device request: (?P<size>\d+MB) Available: \d+MB\. Device memory is insufficient to use tactic",
        "A tactic asks for more memory than is free.", "The builder takes another where there is one.", _FREE_MEMORY,
        "8.2 to 11", _MEMORY,
    ),
    Message(
        "insufficient-memory",
        r"Skipping tactic (?P<tactic>\w+) due to exception .*(?:error allocating (?P<size>\d+-byte)|"
        r"(?i:fail\w* to allocate|allocation fail|out of memory))",
        "The builder skips tactics because memory is short.",
        "The allocator did not give a tactic what it asked for.", _FREE_MEMORY, "8.2 to 11", _MEMORY,
    ),
    Message(
        "workspace", r"Some tactics do not have sufficient workspace memory",
        "The workspace is too small for some tactics.", "They were left out; a faster one may be among them.",
        "If the engine is too slow, raise it: trtexec --memPoolSize=workspace:MiB (--workspace up to 8.3), "
        "set_memory_pool_limit in Python.",
        "7 to 10", _MEMORY,
    ),
    Message(
        "plugin-memory", r"plugin node (?P<name>\S.*?) ?requires (?P<size>\d+ bytes) of scratch space, but",
        "The workspace is too small for plugin {names}.", "Plugins ask for scratch space, which the workspace bounds.",
        "If the GPU has it, raise the workspace (trtexec --memPoolSize=workspace:MiB, --workspace up to 8.3); else "
        "lower the batch or the profile's largest shapes.",
        "7 to 11", _MEMORY, _BUILD,
    ),
    Message(
        "plugin-formats",
        rf"(?<![^\s(])(?:(?P<name>{LAYER}): )?could not find any supported formats consistent with",
        "TensorRT finds no types and formats of inputs and outputs that {names} takes.",
        "A plugin answers in supportsFormatCombination which it takes.",
        "If it is a plugin: cast its inputs to types that it takes, or see that function; one of INT8 or FP16 alone "
        "needs "
        "that precision in the build.",
        "7 to 11", _REPORTS, _BUILD,
    ),
    Message(
        "no-format", r"candidateRequirements\.empty\(\)",
        "TensorRT finds no format in which a layer can run.", "A plugin without formats is among the causes in "
        "reports.",
        "See the last layer that a verbose log names before.",
        "8 to 10", _REPORTS, _BUILD,
    ),
    Message(
        "plugin-run", r"\[pluginV[23]\w*Runner\.cpp::execute::\d+\].*status == kSTATUS_SUCCESS",
        "A plugin reports that it failed when it ran.", "Its enqueue returned a status other than 0.",
        "See its own lines, if it prints any, or run the program under compute-sanitizer.", "8 to 11", _API, _RUN,
    ),
    Message(
        "out-of-memory",
        r"\(out of memory\)|OutOfMemory|(?i:\bcuda out of memory\b)|"
        r"Requested amount of GPU memory \((?P<size>\d+ bytes)\) could not be allocated|"
        r"GPU memory allocation error during getBestTactic: (?P<name>\S+)",
        "An allocation of memory fails.", "Memory that other programs hold on the GPU counts as well.",
        "Free memory on the GPU, lower the batch or the largest shapes, or the workspace.",
        "7 to 11", _GUIDE,
    ),
    Message(
        "tactic-exception", r"Skipping tactic (?P<tactic>\w+) due to (?:exception|CUDA error) ?(?P<reason>.*)",
        "The builder skips tactics that fail.", "Others may run.",
        "If the build fails, see the reason in the line.", "8 to 11", _REPORTS,
    ),
    Message(
        "tactic-timeout", r"GPU error during getBestTactic: (?P<name>.+?) : (?P<reason>.*)",
        "A tactic of {names} failed while it was timed.", "Others may run.",
        "If a launch timed out, raise the limit of the display driver (Windows: TdrDelay); else see the reason.",
        "7 to 10", _CUDA,
    ),
    Message(
        "type-mismatch", r"(?<![^\s(])(?P<name>[^\s(]+): (?:(?!: ).)*?must have same input types?(?P<reason>.*)",
        "Inputs of {names} have different types.",
        "A strongly typed network (the only kind since TensorRT 11) takes types as the model has them.",
        "If the network is strongly typed: insert a Cast, or give the inputs one type in the model.", "10 and 11",
        _STRONG, "parsing or a build",
    ),
    Message(
        "type-mismatch", r"(?P<layer>I\w+Layer) must have same input types(?P<reason>.*)",
        "Inputs of a layer ({layer}) have different types.",
        "A strongly typed network (the only kind since TensorRT 11) takes types as the model has them.",
        "If the network is strongly typed: insert a Cast, or give the inputs one type in the model.", "10 and 11",
        _STRONG, "parsing or a build",
    ),
    Message(
        "input-type",
        rf"{_AT}(?P<reason>operation \w+ requires .*)|(?P<reason2>unsupported input type and output type for \w+.*)",
        "{names} does not take its inputs.", "What it takes instead stands in the line, if anything says so.",
        "If it is their type: insert a Cast, or change it in the model.", "8 to 11", _TYPES,
    ),
    Message(
        "no-profile", r"no optimization profile has been defined|dynamic input is missing dimensions in profile",
        "The network has dynamic inputs and no complete optimization profile.",
        "The builder has to know the least, the usual and the largest shape of each.",
        "Give minimum, optimum and maximum shapes for every dynamic input (trtexec --minShapes, --optShapes, "
        "--maxShapes; in ONNX Runtime the provider's options).",
        "7 to 11", _SHAPES, _BUILD,
    ),
    Message(
        "shape-range",
        r"(?P<reason>(?i:supplied binding dimension|set dimensions?|"
        r"runtime dimension)(?:.{0,90}? for tensor (?P<name>\S+))?.{0,90}?(?:exceed|not satisfy|out of).*)|"
        r"(?P<static>Static dimension mismatch while setting input shape(?: for (?P<name2>\S+?)\. )?.*)|"
        r"(?P<reason2>Batch size was: \d+, but engine max batch size was: \d+)|"
        r"condition: profile(?:Max|Min)Dims\.d\[i\] [<>]= dimensions\.d\[i\]|"
        r"(?P<reason3>input (?:size|shape) .* not equal to (?:max )?model size.*)",
        "The shape of an input{of_names} is not one that the engine was built for.",
        "It is outside its optimization profile, or differs in a dimension that is fixed.",
        "Give a shape within the profile, or build with one that holds it; where the dimension is fixed, export the "
        "model with a dynamic one.",
        "7 to 11", _SHAPES, _RUN,
    ),
    Message(
        "shape-missing",
        r"Not all shapes are specified\.(?: Following input tensors' dimensions are not specified: "
        r"(?P<name>[^\s,]+?)\.?(?=[\s,)]|$))?|condition: allInput(?:Shapes|Dimensions)Specified",
        "The shape of an input{of_names} was not set before the inference.",
        "With dynamic inputs the context needs the shape of each.",
        "Call set_input_shape (up to 8.4 set_binding_shape) for every dynamic input, and check what it returns.",
        "7 to 11", _SHAPES, _RUN,
    ),
    Message(
        "tensor-name", r"given invalid tensor name: (?P<name>\S+)|(?i:cannot find binding of given name): "
        r"(?P<name2>\S+)",
        "The engine has no input or output {names}.", "A call got a name that is not one of the engine's.",
        "List the names (get_tensor_name, polygraphy inspect model ENGINE) and use these.", "7 to 11", _API,
    ),
    Message(
        "address",
        r"Address is not set for (?:input |output )?tensor (?P<name>\S+?)(?=\.? |\.?$)|"
        r"Tensor [\"'“]?(?P<name2>[^\s\"'”]+)[\"'”]? is bound to nullptr",
        "Tensors without a buffer: {names}.", "An inference needs the address of a buffer for every input and output.",
        "Call set_tensor_address (in C++ setTensorAddress) for each of them before the inference.",
        "8.5 to 11", _GUIDE, _RUN,
    ),
    Message(
        "object-order", r"Destroying an? (?P<object>\w+)(?: object)? before destroying (?P<reason>.*?) leads",
        "A {object} is destroyed before objects that it made.", "What follows is undefined.",
        "Destroy contexts, then engines, then the runtime; networks and configurations before the builder.",
        "8 to 11", _API,
    ),
    Message(
        "graph-capture", r"cudaErrorStreamCapture\w+|"
        r"operation (?:not permitted when stream is capturing|failed due to a previous error during capture)",
        "CUDA reports an error of the capture of a graph.",
        "Between begin and end of a capture, calls that wait or allocate are refused, and so are engines that do.",
        "Run one inference before the capture, with the same shapes; see whether the engine can be captured.",
        "8 to 11", _CUDA,
    ),
    Message(
        "precision-flag", r"!config\.getFlag\(BuilderFlag::k(?P<flag>FP16|BF16|INT8|FP8|INT4|FP4)\)",
        "This network takes no precision flag {flag}.",
        "TensorRT-RTX and strongly typed networks take the types from the model alone.",
        "Leave the flag out and write the types into the ONNX graph, as rtlab prepare MODEL --precision fp16 does.",
        "10 (strongly typed), 11 and RTX", _STRONG, _BUILD,
    ),
    Message(
        "precision-flag", r"'[\w.]*BuilderFlag' has no attribute '(?P<flag>FP16|BF16|INT8|FP8|INT4|FP4)'",
        "The installed release has no precision flag {flag}.",
        "TensorRT 11 and TensorRT-RTX take the types from the model alone; old releases lack the newer types.",
        "If it is TensorRT 11 or TensorRT-RTX: leave the flag out and write the types into the ONNX graph, as rtlab "
        'prepare MODEL --precision fp16 does, or install TensorRT 10 (pip install "tensorrt<11"); if the release is '
        "older than the type, install a newer one.",
        "7 to 11 and RTX", _STRONG, _BUILD,
    ),
    Message(
        "flag-conflict", r"(?P<flag>k[A-Z][A-Z0-9_]+) cannot be set if (?P<other>k[A-Z][A-Z0-9_]+) is set",
        "Flags {flag} and {other} exclude each other.", "Both were given to the builder.", "Leave one of them out.",
        "8 to 10", _API,
    ),
    Message(
        "precision-constraint", r"(?i)no implementation of (?:layer )?(?P<name>.+?) obeys the requested constraints",
        "No implementation of {names} obeys the requested constraints.",
        "As a warning it says that another implementation is used.",
        "If that is not accepted, leave the constraint out, or choose another type for these layers.",
        "7 to 10", _TYPES,
    ),
    Message(
        "python-api", r"'tensorrt(?:_bindings|_rtx\w*|_lean\w*|_dispatch\w*)?(?:\.tensorrt\w*)?\.(?P<class>\w+)' "
        r"object has no "
        r"attribute '(?P<member>\w+)'",
        "In the installed TensorRT {class} has no {member}.",
        "The script is for another release, or the name is not TensorRT's. Bindings by number, max_workspace_size and "
        "build_engine are gone since 10.",
        "If the script is for another release: write what the installed one has (get_tensor_name, "
        "set_memory_pool_limit, build_serialized_network), or install the release of the script.",
        "7 to 11", "NVIDIA's TensorRT documentation, Migration Guide",
    ),
    Message(
        "no-scales", r"Calibration failure occurred with no scaling factors detected",
        "INT8 is asked for, and there are no scales.",
        "A calibrator or its cache, ranges of tensors, or Q/DQ pairs of the model give them.",
        "Give a calibrator or its cache (trtexec --calib), or a model with Q/DQ pairs.", "7 to 10", _QUANTIZED, _BUILD,
    ),
    Message(
        "no-calibrator", r"Calibrator is not being used\. Users must provide dynamic range",
        "No calibrator is used for INT8.", "Each tensor needs a range then, from the program or by Q/DQ pairs.",
        "If the ranges are not set, give a calibrator, its cache (trtexec --calib), or Q/DQ pairs.",
        "7 to 10", _QUANTIZED,
    ),
    Message(
        "calibrator-ignored", r"(?i)calibrator (?:won't|will not|is not going to) be used",
        "The calibrator is not used.", "A network with Q/DQ pairs brings its own scales.",
        "If the calibrator's scales are wanted, take the model without Q/DQ pairs.", "8 to 10", _QUANTIZED,
    ),
    Message(
        "int8-scale", r"Missing scale and zero-point for tensor (?P<name>.+?)(?=, expect|$)",
        "Tensors without an INT8 scale: {names}.", "Layers that touch them may run in another precision.",
        "If that is not intended, calibrate them or put Q/DQ pairs at them.", "7 to 10", _QUANTIZED,
    ),
    Message(
        "calibration-table", r"Calibration table does not match calibrator algorithm type",
        "The calibration table is of another algorithm than the calibrator.",
        "The first line of a cache names the algorithm.",
        "Delete the cache, or build with the calibrator that wrote it.", "7 to 10", _REPORTS,
    ),
    # Precision.
    Message(
        "layernorm-fp16",
        r"(?i)Detected layernorm nodes in FP16(?:: (?P<name_list>\S.*))?|Running layernorm after self-attention",
        "Layer normalization runs in FP16 and may overflow{at_names}.",
        "Its mean of squares leaves the range of FP16 where activations are large.",
        "If outputs are wrong: export with opset 17 or later (LayerNormalization), or keep its Pow and ReduceMean in "
        "FP32.",
        "8.5 to 11", _TYPES,
    ),
    Message(
        "fp16-overflow",
        r"(?i)FP32 values which would overflow in FP16",
        "Values are larger than FP16 can hold.", "Beyond 65504 they become the largest number of FP16, or infinite.",
        "If outputs are wrong, keep their layers in FP32 or BF16, or scale them down.", "8.4 to 11", _TYPES,
    ),
    Message(
        "fp16-subnormal",
        r"(?i)(?P<reason>(?:\d+ weights are affected by this issue: )?(?:- ?)?(?:Detected )?(?:subnormal FP16 values|"
        r"values less than smallest positive FP16 subnormal).*)",
        "Weights are smaller than normal numbers of FP16.",
        "Below 6.1e-5 they lose digits, below 6e-8 they become 0 or the smallest number.",
        _COMPARE, "8.4 to 11", _TYPES,
    ),
    Message(
        "fp16-weights",
        r"Weights \[name=(?P<name>.+?)\] had the following issues when converted to (?P<type>FP16|INT8|BF16)|"
        r"issues when converting weights between types",
        "TensorRT reports issues with weights that it converts to another type.",
        "Values that the type does not hold are among such issues.", _COMPARE, "8.4 to 11", _TYPES,
    ),
    # DLA.
    Message(
        "dla-precision", r"DLA only supports FP16 and Int8 precision type\. Switching (?P<name>.+?) device type to GPU",
        "DLA does not run {names}: their precision is neither FP16 nor INT8.", "DLA computes in these two types only.",
        "If it is to run there, build with --fp16 or --int8.", "7 to 10", _DLA,
    ),
    Message(
        "dla-subgraphs",
        r"DLA supports only (?P<limit>\d+) subgraphs per DLA core\. Switching to GPU for layer "
        r"(?P<name>.+?)(?=\.?\s*$)",
        "The network has more pieces than one DLA core takes ({limit}): {names} run on the GPU.",
        "Each layer that DLA does not run cuts the rest into pieces.",
        "If more is to run there, replace layers that fall back between the pieces.", "7 to 10", _DLA,
    ),
    Message(
        "dla-dynamic", r"DLA Layer (?P<name>.+?) does not support dynamic shapes",
        "DLA does not run {names}: shapes are dynamic.",
        "DLA takes one shape, in which least, usual and largest are equal.",
        "If it is to run there, build with static shapes.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-refused",
        r"layer (?P<name>\S.*?) is not supported on DLA,? and (?:falling back to GPU|GPU fallback) is not enabled",
        "DLA does not run {names}, and the fallback to the GPU is not enabled.",
        "DLA takes few layers, each with limits.",
        "Enable the fallback (trtexec --allowGPUFallback, BuilderFlag.GPU_FALLBACK), put these layers on the GPU, or "
        "replace them by layers that DLA has.",
        "7 to 10", _DLA, _BUILD,
    ),
    Message(
        "dla-fallback",
        r"Default DLA is enabled but layer (?P<name>.+?) is not (?:supported|running) on DLA|"
        r"Layer '(?P<name2>.+?)' \((?P<op>\w+)\): Unsupported on DLA|"
        r"Validation failed for DLA layer: (?P<name3>.+?)\. Switching|"
        r"DLA LAYER: (?:\w+ )?(?P<name4>\S+) is not supported, falling back",
        "Not on DLA: {names}.",
        "DLA takes few layers, each with limits; where the others run on the GPU, each change of device copies data.",
        "If the fallback is not allowed, allow it (trtexec --allowGPUFallback); if it is too slow, replace them by "
        "layers "
        "that DLA has.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-reason",
        r"(?P<reason>Batch size .*? for layer (?P<name>\S+) exceeds max batch size allowed of \d+)|"
        r"(?<![^\s\[\](\"])(?P<reason2>(?P<name2>(?!\d+:)[^\s\[\](\":]+): (?:DLA (?:cores? do(?:es)? not "
        r"support|(?:only )?supports)|"
        r"(?:(?!: ).)*? (?:on DLA (?:requires|supports|needs)|not supported (?:for|on|by) DLA)).*)",
        "DLA does not run {names}, for a reason that the message states.",
        "Where the fallback to the GPU is allowed, it runs there.",
        "Change the layer to what DLA takes, or accept the fallback, if it is allowed.", "7 to 10", _DLA,
    ),
    Message(
        "dla-none", r"no layer in the network can run on DLA", "No layer of the network runs on DLA.",
        "Every layer breaks a rule of DLA, or the types are neither FP16 nor INT8.",
        "See what lines before say of each layer, if any do; else build with --fp16 or --int8 and static shapes.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-run", r"DLA (?:Error in \w+: \d+ )?\((?P<reason>Fail\w* [^)\n]*)\)|NVMEDIA_DLA *: *\d+, ERROR: "
        r"(?P<reason2>.*)",
        "The driver of DLA reports an error.", "A plan of another device or release is among the causes in reports.",
        "See whether the plan was built on this device and release, and whether another program uses the DLA core.",
        "7 to 10", _DLA,
    ),
    # Caches and plans.
    Message(
        "timing-cache-new", r"(?i)invalid timing cache, (?:setup a local cache|using freshly)",
        "A new timing cache is begun.",
        "There was none that can be used; where none was given, that is normal.",
        "If the next build is to be faster, keep the cache (trtexec --timingCacheFile).", "7 to 10",
        "NVIDIA's TensorRT documentation, Timing Cache",
    ),
    Message(
        "timing-cache",
        r"(?i)timing cache will not be used",
        "The timing cache is not used.", "A cache serves one release, device and build of TensorRT.",
        "If builds are to be faster, let this one write a new cache; keep one for each release and GPU.",
        "7 to 11", "NVIDIA's TensorRT documentation, Timing Cache",
    ),
    Message(
        "timing-cache",
        r"(?i)timing cache was built with a different|"
        r"(?:could not|failed to|cannot) (?:read|load|deserialize|combine) (?:the )?timing cache|"
        r"timing cache (?:\S+ )?(?:(?:version|device|header) )?(?:mismatch|is incompatible|is not compatible|does not "
        r"match)|incompatible timing cache",
        "A timing cache does not fit, or is not read.", "A cache serves one release, device and build of TensorRT.",
        "If builds are to be faster, let this one write a new cache; keep one for each release and GPU.",
        "7 to 11", "NVIDIA's TensorRT documentation, Timing Cache",
    ),
    Message(
        "plan-version",
        r"(?i)plan file is not compatible with this version of TensorRT",
        "The plan is of another release of TensorRT than the one that opens it.",
        "A plan belongs to the release that built it, unless it was built version compatible (8.6 and later).",
        _REBUILD, "7 to 11 and RTX", _PLANS, _LOAD,
    ),
    Message(
        "plan-version",
        r"Version tag does not match",
        "What is opened was written by another build of TensorRT than opens it.",
        "The serial numbers of its format differ.",
        _REBUILD, "8 to 11 and RTX", _PLANS, _LOAD,
    ),
    Message(
        "plan-damaged", r"Magic tag does not match|(?P<reason>Size specified in header does not match archive size)",
        "The file is no whole plan or cache that this release reads.",
        "It is damaged or cut off, wrapped in another file, or of a release with another format.",
        "Copy it in binary mode, or build it again with the installed release.", "8 to 11", _PLANS, _LOAD,
    ),
    Message(
        "plan-device",
        r"plan file is generated on an incompatible device",
        "The plan was built for another GPU.",
        "A plan holds kernels of one compute capability, unless it was built hardware compatible (8.6 and later).",
        "Build it on this GPU; if both are Ampere or later, --hardwareCompatibilityLevel=ampere+ makes one for both "
        "(TensorRT-RTX: set_compute_capability).",
        "7 to 11 and RTX", _PLANS, _LOAD,
    ),
    Message(
        "plan-model", r"engine plan file across different models of devices",
        "The plan was built on another model of GPU.",
        "Its tactics were timed elsewhere and may be slow or fail here.", "Build it on this GPU.", "7 to 11", _PLANS,
    ),
    Message(
        "plan-lean", r"(?i)cannot deserialize engine with lean runtime|condition: \S*engineHostCodeAllowed",
        "The plan brings a runtime of its own, or needs the full one.",
        "A version compatible plan runs in the lean runtime, others do not; its own runtime has to be allowed.",
        "Set engine_host_code_allowed of the runtime (trtexec --versionCompatible), or build it anew for this runtime.",
        "8.6 to 11", _PLANS, _LOAD,
    ),
    Message(
        "library-version",
        r"(?:was linked|[Cc]ompiled) against (?P<library>\S+(?: LT)?) \d[\d.]* but (?:loaded|"
        r"running against) \S+(?: LT)? \d",
        "A program was made with another release of {library} than is loaded.",
        "As a warning alone it stops nothing.",
        "If it is an error, or nothing else explains wrong results, install the release of {library} that the line "
        "names "
        "first.",
        "7 to 8", _GUIDE,
    ),
    Message(
        "refit", r"condition: \S*\bisRefittable\(\)",
        "The engine's weights cannot be replaced.", "It was not built for that.",
        "If they are to be, build it with BuilderFlag.REFIT.", "7 to 11",
        "NVIDIA's TensorRT documentation, Refitting an Engine",
    ),
    Message(
        "library-missing",
        r"(?P<name>lib(?:nv\w+|cudnn\w*|cublas\w*|cudart|"
        r"onnxruntime_providers)\S*?\.so[\d.]*)'?[:;](?: dlerror: \S+)? cannot open shared object file|"
        r"LoadLibrary failed with error \d+.*?(?P<name2>(?:onnxruntime_providers|nvinfer|nvonnxparser|"
        r"cu)[\w.-]*\.dll)|Unable to load library: (?P<name3>\S*nvinfer\S*?)(?=[:,]?(?:\s|$))|"
        r"Failed to load (?:shared )?library\b(?!.*cannot open)|"
        r"Could not load dynamic library '(?P<name4>lib(?:nv|cu)[^']*)'|"
        r"DLL load failed while importing (?P<name5>tensorrt\w*)",
        "A library cannot be loaded{at_names}.",
        "It, or one that it needs, is not installed in this release, or not in the search path.",
        "Install the release that the file name or its program names, and put its folder into LD_LIBRARY_PATH "
        "(Windows: PATH). If a plugin needs another release than the program, build the plugin for the program's.",
        "7 to 11", _ORT,
    ),
    Message(
        "provider-missing",
        r"Failed to create (?P<name>(?:Tensorrt|NvTensorRTRTX|CUDA)ExecutionProvider)|"
        r"Specified provider '(?P<name2>(?:Tensorrt|NvTensorRTRTX|CUDA)ExecutionProvider)' is not in available",
        "ONNX Runtime does not load {names}.",
        "The installed package lacks the provider, or a library that it needs is missing or of another release.",
        "If it is wanted, install onnxruntime-gpu with the releases of CUDA, cuDNN and TensorRT that its page of "
        "requirements lists.",
        "ONNX Runtime 1.9 and later", _ORT, effect="ONNX Runtime may go on with its next provider.",
    ),
    Message(
        "cuda-start",
        r"(?P<reason>CUDA initialization failure with error: \d+)|"
        r"(?P<reason2>CUDA driver version is insufficient for CUDA runtime version)|"
        r"(?P<reason3>no CUDA-capable device)",
        "CUDA does not start.",
        "In CUDA's list error 35 is a driver older than the program's CUDA, and 100 no GPU.",
        "See whether nvidia-smi lists a GPU there. If the driver is too old, update it, or take a container with an "
        "older "
        "CUDA.",
        "7 to 11", _CUDA, "whatever needs the GPU",
    ),
    Message(
        "cuda-kernel-image", r"no kernel image is available",
        "A program has no kernels for this GPU.", "It, or a plugin or library, was compiled for other compute "
        "capabilities.",
        "Take a build for this GPU; if it is a plugin, compile it with the GPU's architecture (nvcc -arch).", "7 to 11",
        _CUDA,
    ),
    Message(
        "library-status",
        r"(?P<library>Cudnn|Cublas|Cask|CuTensor) Error in \S+: \d+|(?P<library2>CUDNN|CUBLAS)_STATUS_(?!SUCCESS)|"
        r"Assertion (?P<library3>cublas|cudnn)Status == ",
        "{library} reports an error.",
        "Among the causes in reports: a release that does not fit driver, GPU or TensorRT; too little memory.",
        "See how much memory is free, and whether its release is that of TensorRT's support matrix.",
        "7 to 11", _REPORTS,
    ),
    Message(
        "kernel-library", r"Error Code 1: (?P<library>Cask|CuTensor) \((?P<reason>[^)\n]*)",
        "{library}, a library of kernels, reports an error.",
        "Among the causes in reports: a CUDA context of another thread or program, buffers that are too small, memory.",
        "If there are several threads or contexts: make engine, context, stream and buffers in the one that runs them. "
        "Else run the program under compute-sanitizer.",
        "8 to 11", _REPORTS,
    ),
    Message(
        "cuda-error",
        r"Cuda(?: Runtime| Driver)? \((?P<reason>[^)\n]+)\)|\bCuda Error in \S+: (?P<reason2>\d+ \([^)\n]+\))|"
        r"(?i:cuda failure)(?: at [^:]+:\d+| \d+)?: (?P<reason3>.*)|(?P<reason4>(?i:cuda error) \d+ launching \S+)",
        "A call to CUDA fails.",
        "CUDA reports late: the call that fails may be an earlier one, of a plugin or of the program around.",
        "Run it with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer, which names the call. If a handle or a "
        "context is invalid, make engine, context, stream and buffers in the thread and CUDA context that run them.",
        "7 to 11", _REPORTS,
    ),
    Message(
        "myelin", r"Error Code 1: Myelin \((?P<reason>.*?)\)?$",
        "The compiler of fused regions (Myelin) reports an error.", "It compiles what the builder calls ForeignNode.",
        "Take another release, split the region by marking a tensor as output, or change its precision.",
        "8 to 11", _REPORTS,
    ),
    Message(
        "lazy-loading", r"CUDA lazy loading is not enabled",
        "CUDA's lazy loading is not enabled.", "Loading every kernel at the start may cost memory and time.",
        "If memory is short, set CUDA_MODULE_LOADING=LAZY (CUDA 11.7 and later).", "8.5 to 11", _GUIDE,
    ),
    Message(
        "default-stream", r"Using default stream in enqueue",
        "Inferences run in CUDA's default stream.", "TensorRT may wait more often then than in another stream.",
        "If the times matter, make a stream (cudaStreamCreate, torch.cuda.Stream) and give it to execute_async_v3.",
        "8.5 to 11", _API,
    ),
    Message(
        "unused-input", r"Unused Input: (?P<name>\S+)|Input Tensor (?P<name2>\S+) is unused or used only at "
        r"compile-time",
        "Input {names} is unused, or used at build time only.", "It may stay an input of the engine.",
        "If that is not intended, see what the exporter made of it; else feed it, or leave it out of the model.",
        "8 to 11", _REPORTS,
    ),
    Message(
        "deprecated", r"(?:has been|is) deprecated\b",
        "The text calls something deprecated.", "A later release may drop it.",
        "If the program names what replaces it, use that.", "7 to 11", _REPORTS,
    ),
    # The parser.
    Message(
        "file",
        r"(?:[Cc]ould not open|Error opening engine|"
        r"[Ff]ailed to open) file:? ?\"?(?P<file>\S+?\.(?:onnx|data|engine|plan|trt|weights?))\b|"
        r"file path: (?P<file2>\S+) open error",
        'File "{file}" cannot be opened.',
        "It is not at this path, or cannot be read; a model over 2 GiB has its weights in files beside it.",
        "Check the path, seen from the folder that the program runs in.", "7 to 11", _TRTEXEC,
    ),
    Message(
        "model-file",
        r"Load model from (?P<file>\S+\.(?:engine|plan|trt)) ?failed: ?Protobuf parsing failed",
        'ONNX Runtime does not read "{file}": it is no ONNX model.',
        "By its name it is a plan of TensorRT, which ONNX Runtime does not open as a model.",
        "Give ONNX Runtime the ONNX model that the plan was built from; run a plan in TensorRT itself (trtexec "
        "--loadEngine).",
        "ONNX Runtime 1.0 and later", _ORT_CODE, "the session",
    ),
    Message(
        "model-file",
        r"MODEL_DESERIALIZE_FAILED|libprotobuf ERROR .*Error parsing \S+ \S*ModelProto|"
        r"ModelProto\" has no field|Load model from .* ?failed: ?Protobuf parsing failed",
        "The file is no ONNX model that the program can read.", "It is damaged, cut off, or of another format.",
        "Check it with onnx.checker.check_model; large files in git are often pointers (git lfs pull).",
        "7 to 11", _PARSER, _PARSE,
    ),
    Message(
        "model-version", r"(?P<reason>Unsupported model IR version: \d+, max supported.*|Opset \d+ is under.*)",
        "The model is newer than the program that reads it.", "Its version of ONNX is not one that this release knows.",
        "Export with an older opset or IR version, or take a newer release.", "ONNX Runtime 1.0 and later", _ORT_CODE,
    ),
    Message(
        "parser-type",
        r"(?P<reason>Unsupported ONNX data type: \w+(?: \(\d+\))?)|"
        r"(?P<reason2>Found unsupported datatype \(\d+\) when importing initializer): (?P<name>\S+)|"
        r"UNSUPPORTED_NODE_DATATYPE: (?!Found unsupported datatype.* initializer)(?P<reason3>.*)",
        "The parser does not take the type of {names}.",
        "TensorRT has fewer types than ONNX. By number: 2 UINT8, 5 INT16, 8 STRING, 11 DOUBLE, "
        "13 UINT64, 14 COMPLEX64, 15 COMPLEX128.",
        "Cast it in the model to a type that TensorRT has, or move that part out.", "7 to 11", _PARSER, _PARSE,
        is_parser=True,
    ),
    Message(
        "double-weights", r"generated with double-typed weights",
        "The model has weights of type double.", "TensorRT has no double, and casts them to float.",
        "If they need the digits, move that part out.",
        "7 to 11", _PARSER,
    ),
    Message(
        "zero-point",
        r"Non-zero zero point is not supported|Assertion failed: .*(?:shiftIsAllZeros|only supports? symmetric quant)",
        "The parser refuses {names}: its zero point is not 0.",
        "TensorRT quantizes symmetrically; the model was quantized with an offset, as for uint8 activations.",
        "Quantize the FP32 model anew with symmetric INT8 (zero point 0).",
        "8 to 11", "onnx/onnx-tensorrt, onnxOpImporters.cpp", _PARSE, is_parser=True,
    ),
    Message(
        "uff", r"U(?:ff|FF)Parser: .*?error: (?P<name>[^\s:]+): ?(?P<reason>.*)",
        "The UFF parser refuses {names}.", "That format has no further releases, and TensorRT 10 has no parser of it.",
        "Export the model to ONNX.", "5 to 8", _REPORTS, _PARSE,
    ),
    Message(
        "sequence",
        r"\b(?:Sequence(?:Empty|Insert|At|Construct|Erase|Length|Map)|SplitToSequence|"
        r"ConcatFromSequence)\b.*?UNSUPPORTED_NODE|No importer registered for op: (?:Sequence|SplitToS|ConcatFromS)",
        "The parser refuses {names}: TensorRT has no sequences of tensors.",
        "The exporter wrote a Python list as an ONNX sequence.",
        "Stack the list into one tensor before export, or fold constants so that the sequence disappears.",
        "7 to 11", "onnx/onnx-tensorrt, operators.md", _PARSE, is_parser=True,
    ),
    Message(
        "plugin-twice", r"as plugin creator of (?P<plugin>\S+) exists already",
        "A plugin of the name {names} is registered already.",
        "Two libraries bring it, or one was loaded before the plan that holds it.",
        "Load it once.", "8.6 to 11", _REPORTS,
    ),
    Message(
        "plugin",
        r"(?:PluginCreator could not find [Pp]lugin|Error \(Cannot find plugin):? ?(?P<plugin>\w[\w:]*)?|"
        r"\"Plugin not found, are the",
        "No plugin is registered for {names}.",
        "None has its name, version and namespace. The parser takes an operator without an importer for a plugin; a "
        "plan needs the plugins that it was built with.",
        _LOAD_PLUGIN, "7 to 11", _PARSER, "parsing or loading", is_parser=True,
    ),
    Message(
        "plugin", r"IPluginCreator not found in Plugin",
        "The plan needs a plugin that is not registered.",
        "None has its name, version and namespace; a plan needs the plugins that it was built with.",
        _LOAD_PLUGIN, "7 to 11", _REPORTS, _LOAD,
    ),
    Message(
        "plugin", r"No (?:importer|checker) registered for op: (?P<plugin>\w+)\. Attempting to",
        "The parser takes {names} for a plugin.",
        "It has no importer of the operator; whether there is such a plugin is for other lines to say.",
        f"If there is none: {_LOAD_PLUGIN[:1].lower()}{_LOAD_PLUGIN[1:]}", "7 to 11", _PARSER,
    ),
    Message(
        "constant-input", r"Assertion failed: (?!.*![^&|]*is_weights)[^&|]*\bis_weights\(\)",
        "The parser refuses {names}: one of its inputs has to be a constant.",
        "This release takes that input as an initializer only, and the model computes it.",
        f"If it follows from constants: {_FOLD[0].lower()}{_FOLD[1:]}; else take a later release.",
        "7 to 10", "onnx/onnx-tensorrt, builtin_op_importers.cpp", _PARSE,
        is_parser=True,
    ),
    Message(
        "unsupported-operator",
        r"No importer registered for op: ?(?P<operator>\w+)",
        "The parser has no importer of {names}.", "This release does not import the operator, with any attribute.",
        "Export the model without it, or write a plugin; if its result is constant, fold constants.", "7 to 11",
        _PARSER, _PARSE, is_parser=True,
    ),
    Message(
        "parser-refusal",
        r"(?P<code>UNSUPPORTED_NODE(?:_\w+)?|INVALID_NODE|UNSUPPORTED_GRAPH|INVALID_GRAPH|REFIT_FAILED|"
        r"(?<=\): )IN(?:VALID|TERNAL)_\w+): (?P<reason>.*)|\[\d+\] (?P<reason2>(?:Assertion failed|Invalid Node).*)",
        "The parser reports an error at {names}.", "What it says stands in its line.",
        "Change what the message states, simplify the model (polygraphy surgeon sanitize --fold-constants), or take a "
        "later release.",
        "7 to 11", _PARSER, _PARSE, is_parser=True,
    ),
    Message(
        "parser-refusal", r"While parsing node number \d+",
        "The parser reports on {names}.", "What it reports stands in other lines.",
        "If lines that follow are not in the text, give them; else see these.",
        "7 to 11", _PARSER, is_parser=True,
    ),
    Message(
        "int64-binding", r"Make sure (?:input|output) (?P<name>\S+) has Int64 binding",
        "INT64 at the edge of the network: {names}.",
        "TensorRT 10 and later take INT64 as it is; up to 9 it was cast to INT32.",
        "Bind buffers of 64 bits.", "10 and 11", _PARSER,
    ),
    Message(
        "int64-weights", r"generated with INT64 weights",
        "The model has INT64 weights.",
        "TensorRT up to 9 has no INT64, and casts them to INT32; values beyond 2^31 are clamped.",
        "If values that are clamped matter, change them in the model; ends of slices do not.", "7 to 9", _PARSER,
    ),
    Message(
        "int64-weights", r"weights outside the range of INT32 was clamped",
        "Values of INT64 weights are clamped to INT32.", "TensorRT up to 9 has no INT64.",
        "If these values matter, change them in the model; ends of slices do not.", "7 to 9", _PARSER,
    ),
    # trtexec.
    Message(
        "unknown-option", r"\[E\] Unknown option: (?P<name>-\S+(?: \S+)?)",
        "An option is not known: {names}.",
        "Releases of trtexec renamed or removed some (--workspace is --memPoolSize since 8.4; types come from the "
        "model "
        "since 11).",
        "See --help of the installed release.", "7 to 11", _TRTEXEC, "the program",
    ),
    Message(
        "input-name", r'Cannot find input tensor with name "?(?P<name>[^\s"]+)"?',
        "The network has no input {names}.", "A shape or values were given under that name.",
        "Give the names that the model has (polygraphy inspect model MODEL).", "8 to 11", _TRTEXEC, _BUILD,
    ),
    Message(
        "static-shapes", r"Static model does not take explicit shapes",
        "Shapes are given to a model that has no dynamic dimension.", "Its shapes are written into it.",
        "Leave the shapes out (--shapes, --minShapes, --optShapes, --maxShapes); if they are needed, export the model "
        "with dynamic dimensions.",
        "8 to 11", _TRTEXEC, _BUILD,
    ),
    Message(
        "default-shapes",
        r"(?:Dynamic dimensions required for input: ?|"
        r"Shape missing for input with dynamic shape: ?)(?P<name>\S+?)(?:,[^.\n]*\. ?)?Automatically (?:overriding|"
        r"setting) shape to: (?P<reason>\S+)",
        "trtexec chooses the shapes of {names}.",
        "No shapes are given under these names.",
        "If other shapes are meant: give --minShapes, --optShapes, --maxShapes and --shapes under the names of the "
        "model.",
        "7 to 11", _TRTEXEC, effect="Engine and times are those of these shapes.",
    ),
    Message(
        "enqueue-bound", r"Throughput may be bound by Enqueue Time",
        "The GPU may wait for the host, which starts the kernels.",
        "trtexec says so where enqueueing takes over 80 % of the time of the computation.",
        "If throughput matters, run with --useCudaGraph, or with a larger batch.", "8 to 11", _TRTEXEC,
        effect="trtexec measures both, as Enqueue Time and GPU Compute Time.",
    ),
    Message(
        "transfer-bound", r"Throughput may be bound by (?P<reason>(?:host-to-device|device-to-host) transfers)",
        "Copies between host and GPU may bound the throughput.", "trtexec says so by the times that it measured.",
        "If the data can stay on the GPU, measure without them (--noDataTransfers).", "8 to 11", _TRTEXEC,
    ),
    Message(
        "unstable-time", r"GPU compute time is unstable, with coefficient of variance = (?P<reason>[\d.]+%)",
        "The measured times scatter.", "Clocks that change, or another program on the GPU, can do that.",
        "If the times matter: lock the clocks, or measure longer: --useSpinWait, --duration.", "8 to 11", _TRTEXEC,
    ),
    Message(
        "invalid-values", r"(?P<reason>(?:NaN|Inf) Detected) \|",
        "An output holds values that are not finite.", "Polygraphy --validate says so.",
        "Find the first such tensor with --trt-outputs mark all; if FP32 has none there, keep the nodes before it in "
        "FP32.",
        "Polygraphy 0.30 and later", "Polygraphy, comparator/comparator.py",
    ),
    # ONNX Runtime.
    Message(
        "ort-shapes",
        r"TensorRT input: (?P<name>\S+) has no shape specified|"
        r"input\(s\) has no associated shape profiles provided: (?P<reason>.*)",
        "ONNX Runtime's TensorRT provider lacks shapes of tensors{at_names}.",
        "An input of a subgraph has no shape in the model, or no range in the provider's options.",
        "Run onnxruntime/tools/symbolic_shape_infer.py on the model; with trt_profile_min_shapes, _opt_ and _max_, "
        "name the inputs of every subgraph.",
        "ONNX Runtime 1.12 and later", _ORT, "the session or the inference",
    ),
    Message(
        "ort-engine",
        r"TensorRT(?:RTX| RTX)? EP (?:failed to (?:create|build)|"
        r"could not (?:build|deserialize|create)) engine.*?(?:for fused node: (?P<name>\S+)|$)",
        "ONNX Runtime's TensorRT provider makes no engine of a subgraph.",
        "TensorRT refused the subgraph, or the engine in its cache.",
        "See the error of TensorRT itself; if release or GPU changed, delete the cache of engines.",
        "ONNX Runtime 1.12 and later", _ORT, "the session or the inference",
    ),
    Message(
        "ort-input",
        r"(?P<reason>Got invalid dimensions for input: (?P<name>\S+).*|Unexpected input data type\..*)|"
        r"Required inputs \(\[?'?(?P<name2>[^'\])]+).*missing|Invalid Feed Input Name: ?(?P<name3>\S+)",
        "ONNX Runtime does not take what it is fed{at_names}.",
        "Shape, type or name is another than the model's.", "Feed what the model declares (session.get_inputs()).",
        "ONNX Runtime 1.0 and later", _ORT_CODE, _RUN,
    ),
    Message(
        "ort-no-kernel",
        r"Could not find an implementation for (?P<op>\w+\(\d+\)) node(?: with name '(?P<name>[^']*)')?",
        "ONNX Runtime's providers have no kernel for {op}{at_names}.",
        "None of the providers of the session has it for these types and this opset.",
        "If another provider has it, add that; else change types or opset in the model.", "ONNX Runtime 1.0 and later",
        _ORT_CODE,
        "the session",
    ),
    Message(
        "provider-retry", r"Falling back to \[(?P<providers>[^\]]+)\] and retrying",
        "ONNX Runtime tries again with {providers}.", "A session with the providers before failed.",
        "If the provider that failed is wanted, see the error before.", "ONNX Runtime 1.12 and later", _ORT_CODE,
    ),
    Message(
        "provider-fallback", r"Some nodes were not assigned to the preferred execution providers",
        "Some nodes run on another provider than the preferred one.",
        "The preferred provider has no kernel for them, or they compute shapes, which belong on the CPU.",
        "To see which, make the session with log_severity_level=0, whose log names each node's provider.",
        "ONNX Runtime 1.12 and later", "microsoft/onnxruntime, core/framework/session_state.cc",
    ),
    # Torch-TensorRT, TF-TRT, TensorRT-LLM.
    Message(
        "torch-converter",
        r"[Cc]onversion of function (?P<operator>\S+) not currently supported|"
        r"Unable to convert node: .*? = (?P<operator2>\w+::\w+)",
        "Torch-TensorRT does not convert {names}.",
        "It has no converter of it, or none that takes this use of it.",
        "Rewrite the operator, register a converter (torch_tensorrt.dynamo.conversion.dynamo_tensorrt_converter), or "
        "leave it to PyTorch (torch_executed_ops, without require_full_compilation).",
        "Torch-TensorRT 1.0 and later", _TORCH, "the compilation",
    ),
    Message(
        "torch-input", r"Expected input tensors to have (?P<reason>(?:type|device) .*)",
        "An input is not what an engine of Torch-TensorRT takes.",
        "It has another type or device than the engine was compiled for.",
        "Cast or move it (tensor.half(), .cuda()), or compile with torch_tensorrt.Input of that type.",
        "Torch-TensorRT 1.0 and later", "pytorch/TensorRT, core/runtime/execute_engine.cpp", _RUN,
    ),
    Message(
        "torch-unsupported",
        r"(?i:torch.?tensorrt).*Unsupported operator: (?P<operator>(?:aten|prim)::[\w.]+)",
        "Torch-TensorRT does not convert {names}.",
        "There is no converter of the operator: with fallback PyTorch runs it; with require_full_compilation the "
        "compilation stops.",
        "Rewrite the operator, or register a converter (torch_tensorrt.dynamo.conversion.dynamo_tensorrt_converter).",
        "Torch-TensorRT 1.0 and later", _TORCH,
    ),
    Message(
        "torch-none",
        r"\b0 supported operations detected in subgraph|There is no work to perform by (?:Torch-)?TensorRT",
        "Torch-TensorRT finds nothing to convert in a graph or a part of one.",
        "No part of it has enough operators with converters.",
        "See which operators have no converter; if parts are small, lower min_block_size.",
        "Torch-TensorRT 1.4 and later", _TORCH,
    ),
    Message(
        "torch-double",
        r"truncate_(?:long_and_)?double (?:is|was) not set|Unable to freeze tensor of type \w+ into constant layer",
        "Torch-TensorRT does not take a tensor in its type.", "Types of 64 bits have to be truncated.",
        "If the type is of 64 bits: compile with truncate_double=True (older releases truncate_long_and_double), or "
        "cast "
        "the model.",
        "Torch-TensorRT 1.0 and later", _TORCH,
    ),
    Message(
        "tftrt-native",
        r"(?P<name>\S*TRTEngineOp\w*) failed\. The native segment will be used instead\. ?(?:Reason: )?(?P<reason>.*)|"
        r"Cannot replace segment .*? by (?P<name2>\S+) reason: (?P<reason2>.*?) \(keeping original",
        "TF-TRT makes no engine of {names}.", "TensorFlow computes such a segment without TensorRT.",
        "If the reason is a lack of memory or a minimum of nodes, change max_workspace_size_bytes or "
        "minimum_segment_size.",
        "TF-TRT of TensorFlow 1.13 and later", _TF, effect="TensorFlow runs that segment itself.",
    ),
    Message(
        "tftrt-unconverted", r"There are (?P<count>\d+) ops of \d+ different types.*not converted to TensorRT: "
        r"(?P<reason>.*)",
        "TF-TRT does not convert {count} operators.", "TensorFlow runs them.",
        "If they are many, see TF-TRT's list of operators.", "TF-TRT of TensorFlow 1.13 and later", _TF,
    ),
    Message(
        "tftrt-library", r"TF-TRT Warning: Could(?: not|n't) find TensorRT",
        "TensorFlow finds no TensorRT.", "Its library is missing, or of another release than TensorFlow was built "
        "with.",
        "If TF-TRT is used, install the release that this TensorFlow names.",
        "TF-TRT of TensorFlow 2.9 and later", _TF,
    ),
    Message(
        "llm-limit",
        r"(?:TRT-LLM|TensorRT-LLM|tensorrt_llm)[^.:]*\b(?P<limit>max_(?:num_tokens|batch_size|input_len|seq_len|"
        r"beam_width))\b[^.:]*(?:exceed|greater than|larger than)",
        "TensorRT-LLM reports on a limit: {limit}.", "Such limits are set when the engine is built.",
        "If a request exceeds it: lower the request, or build with a larger value (trtllm-build --{limit}).",
        "TensorRT-LLM 0.5 and later", _LLM,
    ),
    # DeepStream, Triton.
    Message(
        "deepstream-rebuild", r"(?:deserialize|create) backend context .*? failed, try rebuild",
        "DeepStream tries to build the engine anew.", "The file of the engine could not be used.",
        "If the build succeeds, name the file that it writes as model-engine-file; else it builds at every start.",
        "DeepStream 5.0 and later",
        _DEEPSTREAM, effect="A build takes its time at the start.",
    ),
    Message(
        "deepstream-parser", r"Could not find output coverage layer|Failed to parse bboxes",
        "DeepStream does not read the model's outputs as boxes.",
        "Its own parser expects outputs of DetectNet; other detectors need a function of their own.",
        "If the model is another detector, set parse-bbox-func-name and custom-lib-path in the configuration of "
        "nvinfer.", "DeepStream 5.0 and later",
        _DEEPSTREAM,
    ),
    Message(
        "deepstream-batch", r"Backend has maxBatchSize \d+ whereas \d+ has been requested",
        "The engine has another batch than DeepStream asks for.", "The engine was built for that batch.",
        "Build it with that batch (dynamic, or batch-size in the configuration).", "DeepStream 5.0 and later",
        _DEEPSTREAM,
    ),
    Message(
        "triton-shape",
        r"unexpected shape for input '(?P<name>[^']+)' for model '[^']+'\. (?P<reason>.*)|"
        r"invalid shape for input '(?P<name2>[^']+)' for .*?(?P<reason2>model expected .*)",
        "A request to Triton has another shape than the model takes{at_names}.",
        "With max_batch_size above 0 the batch comes first.", "Send the shape that the model takes.",
        "Triton 2.0 and later", _TRITON, "the "
        "request",
    ),
    Message(
        "triton-config",
        r"tensor '(?P<name>[^']+)': (?P<reason>the model expects .*)|"
        r"(?P<reason2>configuration (?:specified max-batch|expects datatype) .*)",
        "The configuration config.pbtxt does not fit the model{at_names}.",
        "It may leave out what the plan states itself.", "Write the model's own shapes, types and batch into it, or "
        "leave them out (auto-complete).",
        "Triton 2.0 and later", _TRITON, "loading the model",
    ),
    Message(
        "triton-load",
        r"failed to load '(?P<model>[^'\n]+)' version \d+: (?P<reason>[^\"\n]*)|"
        r"^\s*\|\s*(?P<model2>[^|\s]+)\s*\|\s*\d+\s*\|\s*UNAVAILABLE: (?P<reason2>[^|\"\n]*)",
        'Triton does not load model "{model}".', _TRITON_CAUSE, _TRITON_REMEDY, "Triton 2.0 and later", _TRITON,
        "loading the model",
    ),
    Message(
        "triton-load", r"(?P<reason>unable to (?:load plan file|create TensorRT) [^|\"\n]*)",
        "Triton does not load a model.", _TRITON_CAUSE, _TRITON_REMEDY, "Triton 2.0 and later", _TRITON,
        "loading the model",
    ),
    # Nsight Systems.
    Message(
        "nsight-import",
        r"Importer error status: Importation failed|Import Failed with unexpected exception|"
        r"(?P<reason>Wrong event order has been detected)",
        "Nsight Systems reports an error of its import of a capture.", "The lines behind may say why.",
        "If there is no report: import the file (.qdstrm) with a later release of Nsight Systems, or capture again "
        "with fewer kinds of events "
        "(nsys profile --trace=cuda).",
        "Nsight Systems 2020 and later", _NSIGHT,
    ),
    Message(
        "nsight-empty", r"SKIPPED: \S+ does not contain (?P<name>[\w /-]+?) data",
        "The capture holds no data of {names}.", "The report asks for events that were not captured, or did not "
        "happen.",
        "If they are needed, capture them (nsys profile --trace=cuda,nvtx) while inferences run.",
        "Nsight Systems 2020 and later", _NSIGHT,
        effect="Tables of such data are left out.",
    ),
    # What an API says of itself.
    Message(
        "check",
        r"(?:(?P<call>\w+::~?\w+): )?(?:Error Code 3: )?(?:[\w ]+\()?Parameter check failed(?: at: \S+?)?, condition: "
        r"(?P<reason>.*)",
        "TensorRT refuses an argument{place}.",
        "A call was made with a value, or at a time, that its documentation excludes.",
        "See the call in the program, and its documentation.", "7 to 11", _API,
    ),
    Message(
        "internal-check",
        r"Error Code \d+: [A-Z][\w ]*\(Assertion (?!engine(?:Ptr)? != nullptr|creator)(?P<reason>.*?) failed",
        "A check within TensorRT fails.",
        "Causes in reports: a defect of a release, libraries that do not fit, a network that it "
        "does not take.",
        "Try another release; fold constants; find the part by builds of smaller pieces.", "8 to 11", _REPORTS,
    ),
)  # fmt: skip
