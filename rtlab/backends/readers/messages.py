"""Errors and warnings of TensorRT 7 to 11, TensorRT-RTX, trtexec, ONNX Runtime, Torch-TensorRT and Triton: a table.

To add one: a row of ``MESSAGES``, before the rows that are more general, as a line belongs to the first row that fits.
"""

from __future__ import annotations

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from rtlab.core.message import MessageMatch
from rtlab.core.phrases import pluralize

#: Where wordings and remedies come from.
_GUIDE = "NVIDIA's TensorRT documentation, Troubleshooting"
_MEMORY = "NVIDIA's TensorRT documentation, How TensorRT Works, Memory"
_DLA = "NVIDIA's TensorRT documentation, Working with DLA"
_TYPES = "NVIDIA's TensorRT documentation, Accuracy Considerations"
_PLANS = "NVIDIA's TensorRT documentation, Compatibility"
_SHAPES = "NVIDIA's TensorRT documentation, Working with Dynamic Shapes"
_PARSER = "onnx/onnx-tensorrt, ModelImporter.cpp and operators.md"
_REPORTS = "public reports"
_ORT = "ONNX Runtime's documentation, TensorRT Execution Provider"
_TORCH = "pytorch/TensorRT, py/torch_tensorrt/dynamo/partitioning"
_TRTEXEC = "NVIDIA/TensorRT, samples/trtexec"
_NO_ENGINE = "No engine came of it."
_NEXT_PROVIDER = "ONNX Runtime gives the node to its next provider."
_SHORT = "The builder skips tactics because memory is short."
_FREE_MEMORY = (
    "Free memory on the GPU, lower the profile's largest shapes, or set --memPoolSize to what is free."
)
_UNKNOWN_COST = "Cost unknown: the message has no times."


@dataclasses.dataclass(frozen=True)
class Message:
    """What one message looks like, and what is known of it.

    ``pattern`` is the shortest that identifies it within a line. Its groups: ``name`` is a layer, node or tensor,
    ``size`` a request of memory, ``reason`` what the program says itself; others stand in ``title`` by their names,
    where ``{names}`` are all names. ``releases`` are those of TensorRT where nothing else is said. ``is_parser`` says
    that the parser prints the node apart, before the message or in the lines above. ``effect`` is what comes of it,
    where that is not known from ``failed``.
    """

    id: str
    pattern: str
    title: str
    cause: str
    remedy: str
    releases: str
    source: str
    failed: bool = False
    is_parser: bool = False
    effect: str = ""


#: What stands behind the name of a layer in messages of any release.
_END = r"(?=\.?\)|\. In |, try | due to |\.?\s*$)"
_NODE = rf"(?P<name>\{{ForeignNode\[.*?\]\}}|\S.*?){_END}"
#: A layer that a message begins with, behind a bracket, a kind of layer or what a logger writes.
_LAYER = r"\(Unnamed Layer\* \d+\) \[[^\]\n]*\]|[^\s(:]+"
_AT = rf"(?:\(|(?:I\w+Layer|ERROR:|\[TRT\]|\[E\]|\b\d:) )(?P<name>{_LAYER}): "
#: How a logger marks an error.
_MARK = (
    r"\[[\d/]{10}-[\d:]{8}\] (?:\[TRT\] )?\[[EF]\](?: ?\[TRT\])?|\[TRT\] ?\[[EF]\]|\[[EF]\] ?\[TRT\]|"
    r"^\[[EF]\](?=.*(?i:tensorrt|onnx|engine|myelin))|\[TensorRT\] (?:INTERNAL_)?ERROR:|"
    r"ERROR: \[(?:TRT|Torch-TensorRT[^\]\n]*)\](?: -|:)?|\[[\d :-]{10,20} +ERROR\]|NVMEDIA_DLA : *\d+, ERROR:"
)

MESSAGES: tuple[Message, ...] = (
    # The builder.
    Message(
        "no-implementation", rf"(?i:could not find any implementation for node) {_NODE}",
        "TensorRT has no kernel that runs {names}: the build fails there.",
        "Every tactic that the builder tried for it failed or did not fit into memory.",
        "Where tactics lacked memory, raise the workspace (trtexec --memPoolSize=workspace:MiB) if the GPU has it, and "
        "free memory if not; else write these nodes in another form or precision, or build them in another release.",
        "7 to 11", _GUIDE, failed=True,
    ),
    Message(
        "no-runner", r"(?<!\S)(?P<name>\S+) has no runners that implement it",
        "This compiler has no implementation of {names}.",
        "The operator is not among those that this release and GPU run; TensorRT-RTX lacks some that TensorRT has.",
        "Build with TensorRT in place of TensorRT-RTX, or cut the model before the node and run it elsewhere.",
        "8 to 11 and RTX", "TensorRT-RTX release notes, Limitations", failed=True,
    ),
    Message(
        "gpu-unsupported", r"Target GPU SM (?P<sm>\d+) is not supported|Unsupported SM\b",
        "This release of TensorRT does not support the GPU.",
        "A release has kernels for a range of compute capabilities: later ones drop old GPUs, earlier ones lack new "
        "ones.",
        "Install a release whose support matrix lists the GPU.",
        "7 to 11", "NVIDIA's TensorRT documentation, Support Matrix", failed=True,
    ),
    Message(
        "gpu-type", r"\b(?P<type>\w+) support requested on hardware without native",
        "The GPU has no native arithmetic of {type}.",
        "Layers in that type run slowly there, or in another type.",
        "Leave the flag out, or choose a type that the GPU has.",
        "7 to 10", "NVIDIA's TensorRT documentation, Support Matrix",
    ),
    Message(
        "gpu-type", r"require hardware with (?P<type>\w+) support",
        "The GPU has no native arithmetic of {type}.",
        "The model has layers that compute in no other type.",
        "Build for another GPU, or from the model without Q/DQ pairs.",
        "8 to 11", "NVIDIA's TensorRT documentation, Support Matrix", failed=True,
    ),
    Message(
        "no-output", r"Network must have at least one output",
        "The network has no outputs.",
        "No tensor was marked; after a parser that failed, the network is empty as well.",
        "Check what the parser returned and print its errors; else mark an output (mark_output).",
        "7 to 11", _GUIDE, failed=True,
    ),
    Message(
        "shape-tensor", rf"{_AT}(?:an? )?\w+ cannot be used to compute a shape tensor",
        "TensorRT does not compute a shape with {names}.",
        "A shape follows from its output. Shapes are computed on the host, by few kinds of layers.",
        "Fold constants (polygraphy surgeon sanitize --fold-constants), or export the model with static shapes there.",
        "8 to 11", _SHAPES, failed=True,
    ),
    Message(
        "shape-conflict",
        rf"(?:{_AT})?(?P<reason>(?:broadcast dimensions must be conformable|reshape (?:would change|changes) volume|"
        r"all concat input tensors must have the same|inputs must have same (?:number of )?dimensions|"
        r"dimensions not compatible|number of kernel weights does not|(?:kernel|bias) weights has count|"
        rf"reshaping failed for tensor)(?:.*?I\w+Layer (?P<name2>{_LAYER}): )?.*)",
        "Shapes contradict each other at {names}.",
        "They are those of the model, or follow from the shapes of a profile or of an input.",
        "Run the model in ONNX Runtime with the same input shapes: where it fails as well, export it anew; else fold "
        "constants (polygraphy surgeon sanitize --fold-constants), or give shapes that the model takes.",
        "7 to 11", _SHAPES, failed=True,
        effect="The build or the inference stops there.",
    ),
    Message(
        "myelin-tactics", r"(?i)autotuner: no tactics to implement operation",
        "The compiler of fused regions finds no kernel for one operation.",
        "Its autotuner tried all kernels of that operation and none ran.",
        "Change the precision of that operation, split the region by marking a tensor as output, or take another "
        "release.",
        "8.6 to 11", _REPORTS,
    ),
    Message(
        "insufficient-memory",
        r"Skipping tactic (?:\w+ )?due to insuff?icient memory on requested size of (?P<size>\d+)"
        r"(?: detected for tactic (?P<tactic>\w+))?",
        _SHORT,
        "A tactic asked for more device memory than is free, or than the workspace allows.",
        _FREE_MEMORY,
        "8.2 to 11", _MEMORY,
    ),
    Message(
        "insufficient-memory", r"Tactic Device request: (?P<size>\d+)MB Available: (?P<available>\d+)MB",
        _SHORT,
        "A tactic asked for more device memory than is free.",
        _FREE_MEMORY,
        "8.2 to 11", _MEMORY,
    ),
    Message(
        "insufficient-memory", r"Skipping tactic (?P<tactic>\w+) due to exception .*(?i:allocat|out of memory)",
        _SHORT,
        "The allocator could not give a tactic what it asked for.",
        _FREE_MEMORY,
        "8.2 to 11", _MEMORY,
    ),
    Message(
        "workspace", r"Some tactics do not have sufficient workspace memory",
        "The workspace is too small for some tactics.",
        "They were left out; a faster one may be among them.",
        "Raise it: trtexec --memPoolSize=workspace:MiB (--workspace up to 8.3), set_memory_pool_limit in Python.",
        "7 to 10", _MEMORY,
    ),
    Message(
        "plugin-memory", r"plugin node (?P<name>\S.*?) ?requires (?P<size>\d+) bytes of scratch space",
        "The workspace is too small for plugin {names}.",
        "A plugin has one implementation, which needs that much.",
        "Raise the workspace (trtexec --memPoolSize=workspace:MiB, --workspace up to 8.3) if the GPU has it, or lower "
        "the batch or the profile's largest shapes.",
        "7 to 11", _MEMORY, failed=True,
    ),
    Message(
        "plugin-formats",
        rf"(?<![^\s(])(?:(?P<name>{_LAYER}): )?could not find any supported formats consistent with",
        "Plugin {names} takes none of the types and formats that it may get.",
        "TensorRT asks the plugin for each combination, and it refuses all.",
        "Cast its inputs to types that it takes, or see its supportsFormatCombination; a plugin of INT8 or FP16 alone "
        "needs that precision in the build.",
        "7 to 11", _REPORTS, failed=True,
    ),
    Message(
        "out-of-memory",
        r"Cuda (?:Runtime|Driver|Error in \S+: \d+) \(out of memory\)|OutOfMemory|\bcuda out of memory\b|"
        r"Requested amount of GPU memory \((?P<size>\d+) bytes\) could not be allocated|"
        r"GPU memory allocation error during getBestTactic: (?P<name>\S+)",
        "The GPU's memory is full.",
        "An allocation failed; other programs on the GPU count as well.",
        "Free memory on the GPU, lower the batch or the largest shapes, or the workspace.",
        "7 to 11", _GUIDE,
    ),
    Message(
        "tactic-exception", r"Skipping tactic (?P<tactic>\w+) due to (?:exception|CUDA error) ?(?P<reason>.*)",
        "Tactics are skipped because they fail.",
        "They failed when they were tried, for the reason that the line gives; others may run.",
        "Nothing where the build succeeds; else see the reason.",
        "8 to 11", _REPORTS,
    ),
    Message(
        "type-mismatch", r"(?<![^\s(])(?P<name>[^\s(]+): (?:(?!: ).)*?must have same input types?(?P<reason>.*)",
        "Inputs of {names} have different types.",
        "A strongly typed network (the only kind since TensorRT 11) takes types as the model has them.",
        "Insert a Cast, or give both inputs one type in the model.",
        "10 and 11", "NVIDIA's TensorRT documentation, Strongly Typed Networks", failed=True,
    ),
    Message(
        "no-profile", r"no optimization profile has been defined|dynamic input is missing dimensions in profile",
        "The network has dynamic inputs and no complete optimization profile.",
        "The builder has to know the least, the usual and the largest shape of each.",
        "Give --minShapes, --optShapes and --maxShapes for every dynamic input (in ONNX Runtime, by the provider's "
        "options).",
        "7 to 11", _SHAPES, failed=True,
    ),
    Message(
        "shape-range",
        r"(?i)(?:supplied binding dimension|set dimensions?|runtime dimension).{0,80}?(?:exceed|not satisfy|out of)"
        r"(?P<reason>.*)|(?P<static>Static dimension mismatch while setting input shape(?: for (?P<name>\S+?)\. )?.*)|"
        r"(?P<reason2>Batch size was: \d+, but engine max batch size was: \d+)",
        "The shape of an input is not one that the engine was built for.",
        "It is outside its optimization profile, or differs in a dimension that is fixed.",
        "Give a shape within the profile, or build with one that holds it; where the dimension is fixed, export the "
        "model with a dynamic one.",
        "7 to 11", _SHAPES,
        effect="This inference does not run.",
    ),
    Message(
        "address",
        r"Address is not set for (?:input |output )?tensor (?P<name>\S+?)(?=\.? |\.?$)|"
        r"Tensor [\"'“]?(?P<name2>[^\s\"'”]+)[\"'”]? is bound to nullptr",
        "Tensors without a buffer: {names}.",
        "An inference needs the address of a buffer for every input and output.",
        "Call set_tensor_address (in C++ setTensorAddress) for each of them before the inference.",
        "8.5 to 11", _GUIDE,
        effect="This inference does not run.",
    ),
    Message(
        "precision-flag",
        r"!config\.getFlag\(BuilderFlag::k(?P<flag>\w+?)\)|"
        r"'[\w.]*BuilderFlag' has no attribute '(?P<flag2>FP16|BF16|INT8|FP8|INT4|FP4)'",
        "The compiler takes no precision flag.",
        "TensorRT 11, TensorRT-RTX and strongly typed networks take the types from the model alone.",
        "Leave the flag out and write the types into the ONNX graph, as rtlab prepare MODEL --precision fp16 does; or "
        'install a release that has it (pip install "tensorrt<11").',
        "10 (strongly typed), 11 and RTX", "NVIDIA's TensorRT documentation, Strongly Typed Networks", failed=True,
    ),
    Message(
        "python-api", r"'tensorrt[\w.]*\.(?P<class>\w+)' object has no attribute '(?P<member>\w+)'",
        "The installed release of TensorRT has no {class}.{member}.",
        "The script is for another release. Bindings by number, max_workspace_size and build_engine are gone since 10.",
        "Write what the installed release has (get_tensor_name, set_memory_pool_limit, build_serialized_network), or "
        "install the release of the script.",
        "7 to 11", "NVIDIA's TensorRT documentation, Migration Guide", failed=True,
        effect="The script stops there.",
    ),
    Message(
        "no-scales", r"Calibration failure occurred with no scaling factors detected",
        "INT8 is asked for, and there are no scales.",
        "The build has neither a calibrator nor ranges, nor the model Q/DQ pairs.",
        "Give a calibrator or its cache (trtexec --calib), or a model with Q/DQ pairs.",
        "7 to 10", "NVIDIA's TensorRT documentation, Working with Quantized Types", failed=True,
    ),
    Message(
        "int8-scale", r"Missing scale and zero-point for tensor (?P<name>.+?)(?=, expect|$)",
        "Tensors without an INT8 scale: {names}.",
        "Their layers run in another precision.",
        "Nothing where that is intended; else calibrate them or put Q/DQ pairs at them.",
        "7 to 10", "NVIDIA's TensorRT documentation, Working with Quantized Types",
    ),
    Message(
        "calibration-table", r"Calibration table does not match calibrator algorithm type",
        "The calibration cache is another calibrator's.",
        "Its first line names the algorithm, and the builder was given another one.",
        "Delete the cache, or build with the calibrator that wrote it.",
        "7 to 10", _REPORTS,
    ),
    # Precision.
    Message(
        "layernorm-fp16", r"(?i)Detected layernorm nodes in FP16|Running layernorm after self-attention",
        "Layer normalization runs in FP16 and may overflow.",
        "Its mean of squares leaves the range of FP16 where activations are large; the nodes stand in single "
        "operators.",
        "Export with opset 17 or later (LayerNormalization), or keep its Pow and ReduceMean in FP32.",
        "8.5 to 11", _TYPES,
    ),
    Message(
        "fp16-overflow",
        r"(?i)(?:FP32 values which would overflow in FP16|values? (?:out|outside) of (?:FP16|the FP16) range|"
        r"overflow(?:s|ed)? (?:in|when converted to) FP16|beyond the range of FP16)",
        "Weights are larger than FP16 can hold.",
        "Beyond 65504 a weight becomes the largest number of FP16, or infinite.",
        "Keep their layers in FP32 or BF16, or scale the weights down.",
        "8.4 to 11", _TYPES,
    ),
    Message(
        "fp16-subnormal",
        r"(?i)(?:(?P<count>\d+) weights are affected by this issue: )?(?:- ?)?(?:Detected )?"
        r"(?:subnormal FP16 values|values less than smallest positive FP16 subnormal)",
        "Weights are smaller than normal numbers of FP16.",
        "Below 6.1e-5 they lose digits, below 6e-8 they become 0 or the smallest number; this seldom matters.",
        "Compare the outputs; where they differ, keep these layers in FP32.",
        "8.4 to 11", _TYPES,
    ),
    Message(
        "fp16-weights",
        r"Weights \[name=(?P<name>.+?)\] had the following issues when converted to (?P<type>FP16|INT8|BF16)|"
        r"issues when converting weights between types",
        "Weights change when they are converted to a narrower type.",
        "Some values are outside what the type holds; verbose lines say which.",
        "Compare the outputs; where they differ, keep these layers in FP32.",
        "8.4 to 11", _TYPES,
    ),
    # DLA.
    Message(
        "dla-precision", r"DLA only supports FP16 and Int8 precision type\. Switching (?P<name>.+?) device type to GPU",
        "DLA does not run {names}: their precision is neither FP16 nor INT8.",
        "DLA computes in these two types only.",
        "Build with --fp16 or --int8.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-subgraphs",
        r"DLA supports only (?P<limit>\d+) subgraphs per DLA core\. Switching to GPU for layer "
        r"(?P<name>.+?)(?=\.?\s*$)",
        "The network has more pieces than one DLA core takes ({limit}): {names} run on the GPU.",
        "Each layer that DLA does not run cuts the rest into pieces.",
        "Replace the layers that fall back first, which joins the pieces.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-dynamic", r"DLA Layer (?P<name>.+?) does not support dynamic shapes",
        "DLA does not run {names}: shapes are dynamic.",
        "DLA takes one shape, in which least, usual and largest are equal.",
        "Build with static shapes.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-reason",
        r"(?<![^\s\[\]])(?P<name>[^\s\[\]]+): (?P<reason>(?:DLA (?:cores? do(?:es)? not support|(?:only )?supports)|"
        r"(?:(?!: ).)*? on DLA (?:requires|supports|needs)).*)",
        "DLA does not run {names}.",
        "The layer breaks a rule of DLA, which the message states.",
        "Change the layer to what DLA takes, or leave it to the GPU with --allowGPUFallback.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-none", r"no layer in the network can run on DLA",
        "No layer of the network runs on DLA.",
        "Every layer breaks a rule of DLA, or the types are neither FP16 nor INT8.",
        "Build with --fp16 or --int8 and static shapes; the lines before say what each layer lacks.",
        "7 to 10", _DLA,
    ),
    Message(
        "dla-fallback",
        r"Default DLA is enabled but layer (?P<name>.+?) is not (?:supported|running) on DLA|"
        r"Layer '(?P<name2>.+?)' \((?P<op>\w+)\): Unsupported on DLA|"
        r"Validation failed for DLA layer: (?P<name3>.+?)\. Switching",
        "On the GPU and not on DLA: {names}.",
        "DLA has no such layer, or not with these parameters; each change of device copies data.",
        "Replace them by layers that DLA has, or accept the fallback (--allowGPUFallback).",
        "7 to 10", _DLA,
    ),
    # Caches and plans.
    Message(
        "timing-cache",
        r"(?i)invalid timing cache|timing cache will not be used|(?:could not|failed to|cannot) \w+ (?:the )?timing "
        r"cache|"
        r"timing cache[^.\n]{0,80}(?:mismatch|incompatib|not compatible|does not match|ignored)|"
        r"(?:mismatch|incompatible|ignoring)[^.\n]{0,40} timing cache",
        "The timing cache is not used.",
        "It is from another release, device or build of TensorRT, empty or damaged; every tactic is timed anew.",
        "Delete it and let this build write a new one; keep one for each release and GPU.",
        "7 to 11", "NVIDIA's TensorRT documentation, Timing Cache",
    ),
    Message(
        "plan-version",
        r"(?i)plan file is not compatible with this version of TensorRT(?:, expecting (?:library )?version "
        r"(?P<expected>[\d.]*\d) got (?P<actual>[\d.]*\d))?",
        "The plan is of another release of TensorRT than the one that opens it.",
        "A plan belongs to the release that built it, unless it was built version compatible (8.6 and later).",
        "Build it again with the installed release, or install the one that built it.",
        "7 to 11", _PLANS, failed=True,
        effect="The engine is not opened.",
    ),
    Message(
        "plan-version",
        r"Version tag does not match(?:\. Note: Current Version: (?P<expected>\d+), Serialized Engine Version: "
        r"(?P<actual>\d+))?",
        "The plan is of another release of TensorRT than the one that opens it.",
        "The serial numbers of its format differ, so another build of TensorRT wrote it.",
        "Build it again with the installed release, or install the one that built it.",
        "8 to 11", _PLANS, failed=True,
        effect="The engine is not opened.",
    ),
    Message(
        "plan-damaged", r"Magic tag does not match",
        "The file is no plan or cache of this kind.",
        "Its first bytes are others: it is damaged, wrapped in another file, or of another program.",
        "Copy it in binary mode, or build it again.",
        "8 to 11", _PLANS, failed=True,
        effect="The engine is not opened.",
    ),
    Message(
        "plan-device",
        r"plan file is generated on an incompatible device(?:, expecting compute (?P<expected>[\d.]*\d) got compute "
        r"(?P<actual>[\d.]*\d))?",
        "The plan was built for another GPU.",
        "A plan holds kernels of one compute capability, unless it was built hardware compatible (8.6 and later).",
        "Build it on this GPU, or with --hardwareCompatibilityLevel=ampere+ (TensorRT-RTX: set_compute_capability).",
        "7 to 11 and RTX", _PLANS, failed=True,
        effect="The engine is not opened.",
    ),
    Message(
        "plan-model", r"engine plan file across different models of devices",
        "The plan was built on another model of GPU.",
        "It runs, but its tactics were timed elsewhere and may be slow or fail here.",
        "Build it on this GPU.",
        "7 to 11", _PLANS,
        effect="The engine runs; how fast is not known.",
    ),
    Message(
        "library-version",
        r"(?:was linked|[Cc]ompiled) against (?P<library>\S+) (?P<expected>[\d.]*\d) but (?:loaded|running against) "
        r"\S+ (?P<actual>[\d.]*\d)",
        "TensorRT was made with another release of {library} than is loaded.",
        "Libraries of two installations are mixed.",
        "Install the release of {library} that TensorRT names, or remove the other one from the search path.",
        "7 to 8", _GUIDE,
    ),
    Message(
        "refit", r"\bisRefittable\(\)",
        "The engine's weights cannot be replaced.",
        "It was not built for that.",
        "Build it with BuilderFlag.REFIT.",
        "7 to 11", "NVIDIA's TensorRT documentation, Refitting an Engine",
        effect="The engine keeps its weights.",
    ),
    Message(
        "library-missing", r"(?P<name>lib(?:nvinfer|nvonnxparser|cudnn|cublas|cudart|"
        r"onnxruntime_providers)\S*?\.so[\d.]*):"
        r" cannot open shared object file|Failed to create (?P<provider>TensorrtExecutionProvider)|"
        r"LoadLibrary failed with error \d+.*?(?P<name2>(?:onnxruntime_providers|nvinfer|nvonnxparser|cu)[\w.-]*\.dll)|"
        r"Unable to load library: (?P<name3>\S*nvinfer\S*?)(?=[:,]?\s|$)",
        "A library of TensorRT or CUDA is missing.",
        "The program was built for a release that is not installed or not in the search path; ONNX Runtime then goes "
        "on with its next provider.",
        "Install the release that the program names, and put its folder into LD_LIBRARY_PATH (Windows: PATH).",
        "7 to 11", _ORT,
    ),
    Message(
        "cuda-start", r"CUDA initialization failure with error: (?P<reason>\d+)",
        "CUDA does not start.",
        "The driver is older than this TensorRT's CUDA, or no GPU is visible.",
        "Update the driver, or run where nvidia-smi lists a GPU.",
        "7 to 11", _GUIDE, failed=True,
        effect="Nothing runs on the GPU.",
    ),
    Message(
        "cuda-error",
        r"Cuda (?:Runtime|Driver) \((?P<reason>[^)\n]+)\)|"
        r"\bC(?:uda|udnn|ublas|ask) Error in \S+: (?P<reason2>\d+ \([^)\n]+\))",
        "A call to CUDA fails.",
        "CUDA reports late: the call that fails may be an earlier one, of a plugin or of the program around.",
        "Run it with CUDA_LAUNCH_BLOCKING=1 or under compute-sanitizer, which names the call. Where a handle or a "
        "context is invalid, make engine, context, stream and buffers in the thread and CUDA context that run them.",
        "7 to 11", _REPORTS,
        effect="What it stops is not known.",
    ),
    Message(
        "lazy-loading", r"CUDA lazy loading is not enabled",
        "CUDA loads every kernel at the start.",
        "Lazy loading is off, which costs memory and time at the start.",
        "Set CUDA_MODULE_LOADING=LAZY (CUDA 11.7 and later).",
        "8.5 to 11", _GUIDE,
    ),
    # The parser.
    Message(
        "file",
        r"(?:[Cc]ould not open|Error opening engine|[Ff]ailed to open) file:? ?\"?"
        r"(?P<file>\S+?\.(?:onnx|data|engine|plan|trt|weights?))\b",
        'File "{file}" cannot be opened.',
        "It is not at this path, or may not be read; a model over 2 GiB has its weights in files beside it.",
        "Check the path, seen from the folder that the program runs in.",
        "7 to 11", _TRTEXEC, failed=True,
    ),
    Message(
        "zero-point",
        r"Non-zero zero point is not supported|shiftIsAllZeros|only supports? symmetric quantization",
        "The parser refuses {names}: its zero point is not 0.",
        "TensorRT quantizes symmetrically; the model was quantized with an offset, as for uint8 activations.",
        "Quantize the FP32 model anew with symmetric INT8 (zero point 0).",
        "8 to 11", "onnx/onnx-tensorrt, onnxOpImporters.cpp", failed=True, is_parser=True,
    ),
    Message(
        "uff", r"U(?:ff|FF)Parser: .*?error: (?P<name>[^\s:]+): ?(?P<reason>.*)",
        "The UFF parser refuses {names}.",
        "That format has no further releases, and TensorRT 10 has no parser of it.",
        "Export the model to ONNX.",
        "5 to 8", _REPORTS, failed=True,
    ),
    Message(
        "sequence",
        r"(?:[Ss]equence(?:Empty|Insert|At|Construct|Erase|Length|Map)|SplitToSequence|ConcatFromSequence)\b.*?"
        r"(?:UNSUPPORTED|not supported)|No importer registered for op: \w*Sequence",
        "The parser refuses {names}: TensorRT has no sequences of tensors.",
        "The exporter wrote a Python list as an ONNX sequence.",
        "Stack the list into one tensor before export, or fold constants so that the sequence disappears.",
        "7 to 11", "onnx/onnx-tensorrt, operators.md", failed=True, is_parser=True,
    ),
    Message(
        "plugin",
        r"(?i:could not find plugin|cannot find plugin):? ?(?P<plugin>\w[\w:]*)?|Plugin not found|"
        r"IPluginCreator not found",
        "No plugin runs {names}.",
        "No library that is loaded has it. The parser takes an operator without an importer for a plugin; a plan needs "
        "the plugins that it was built with.",
        "Load the library that has it (trtexec --plugins up to 8.5, --staticPlugins or --dynamicPlugins from 8.6 on; "
        "in Python init_libnvinfer_plugins), or export the model without the operator.",
        "7 to 11", _PARSER, failed=True, is_parser=True,
    ),
    Message(
        "plugin", r"No (?:importer|checker) registered for op: (?P<plugin>\w+)\. Attempting to",
        "The parser takes {names} for a plugin.",
        "It has no importer of the operator; the lines behind say whether there is such a plugin.",
        "Where there is none, load the library that has it (trtexec --plugins up to 8.5, --staticPlugins or "
        "--dynamicPlugins from 8.6 on), "
        "or export the model without the operator.",
        "7 to 11", _PARSER,
    ),
    Message(
        "constant-input", r"Assertion failed: .*\bis_weights\(\)",
        "The parser refuses {names}: one of its inputs has to be a constant.",
        "This release takes that input as an initializer only, and the model computes it.",
        "Fold constants (polygraphy surgeon sanitize --fold-constants), or take a later release.",
        "7 to 10", "onnx/onnx-tensorrt, builtin_op_importers.cpp", failed=True, is_parser=True,
    ),
    Message(
        "unsupported-operator",
        r"(?:No importer registered for op: ?|Unsupported operator:? )(?P<operator>(?!aten|prim)\w+)",
        "The parser has no importer of {names}.",
        "TensorRT does not know the operator, not with any attribute.",
        "Export the model without it, fold constants, or write a plugin.",
        "7 to 11", _PARSER, failed=True, is_parser=True,
    ),
    Message(
        "parser-refusal",
        r"(?P<code>UNSUPPORTED_NODE(?:_\w+)?|INVALID_NODE|UNSUPPORTED_GRAPH|MODEL_DESERIALIZE_FAILED|"
        r"(?<=\): )INVALID_\w+): (?P<reason>.*)|\[\d\] (?P<reason2>(?:Assertion failed|Invalid Node).*)",
        "The parser refuses {names}.",
        "The node is valid ONNX, but not in a form that the parser takes.",
        "Change what the message states, simplify the model (polygraphy surgeon sanitize --fold-constants), or take a "
        "later release.",
        "7 to 11", _PARSER, failed=True, is_parser=True,
    ),
    Message(
        "parser-refusal", r"While parsing node number \d+",
        "The parser refuses {names}.",
        "The lines behind say why, where they are in the text.",
        "Give the lines that follow; simplify the model, or take a later release.",
        "7 to 11", _PARSER, failed=True, is_parser=True,
    ),
    Message(
        "int64-binding", r"Make sure (?:input|output) (?P<name>\S+) has Int64 binding",
        "INT64 at the edge of the network: {names}.",
        "TensorRT 10 and later take INT64 as it is; up to 9 it was cast to INT32.",
        "Bind buffers of 64 bits; nothing else is to be done.",
        "10 and 11", _PARSER,
        effect="No cost.",
    ),
    Message(
        "int64-weights", r"generated with INT64 weights|weights outside the range of INT32 was clamped",
        "INT64 weights are cast to INT32.",
        "TensorRT up to 9 has no INT64; values beyond 2^31 are clamped, most often ends of slices, where it is "
        "harmless.",
        "Nothing, unless they are numbers to compute with.",
        "7 to 9", _PARSER,
    ),
    # trtexec.
    Message(
        "unknown-option", r"Unknown option: (?P<name>-\S+(?: \S+)?)",
        "An option is not known: {names}.",
        "trtexec says so of options that its release renamed or removed (--workspace is --memPoolSize since 8.4; "
        "types come from the model "
        "since 11).",
        "See trtexec --help of the installed release.",
        "7 to 11", _TRTEXEC, failed=True,
        effect="trtexec stops there.",
    ),
    Message(
        "input-name", r'Cannot find input tensor with name "?(?P<name>[^\s"]+)"?',
        "The network has no input {names}.",
        "trtexec got a shape or values under that name.",
        "Give the names that the model has (polygraphy inspect model MODEL).",
        "8 to 11", _TRTEXEC, failed=True,
    ),
    Message(
        "static-shapes", r"Static model does not take explicit shapes",
        "Shapes are given to a model that has no dynamic dimension.",
        "Its shapes are written into it.",
        "Leave --shapes, --minShapes, --optShapes and --maxShapes out, or export the model with dynamic dimensions.",
        "8 to 11", _TRTEXEC, failed=True,
    ),
    Message(
        "default-shapes",
        r"(?:Dynamic dimensions required for input: ?|Shape missing for input with dynamic shape: ?)"
        r"(?P<name>\S+?)(?:,[^.\n]*\. ?)?Automatically (?:overriding|setting) shape to: (?P<reason>\S+)",
        "trtexec chooses the shapes of {names}.",
        "No shapes are given under these names, so each dynamic dimension becomes 1.",
        "Give --minShapes, --optShapes, --maxShapes and --shapes under the names of the model.",
        "7 to 11", _TRTEXEC,
        effect="Engine and times are those of these shapes.",
    ),
    Message(
        "enqueue-bound", r"Throughput may be bound by Enqueue Time",
        "The host is slower to start kernels than the GPU to run them.",
        "Enqueue takes longer than the computation, so that the GPU waits.",
        "Run with --useCudaGraph, or with a larger batch.",
        "8 to 11", _TRTEXEC,
        effect="The summary has both: Enqueue Time and GPU Compute Time.",
    ),
    Message(
        "unstable-time", r"GPU compute time is unstable, with coefficient of variance = (?P<reason>[\d.]+%)",
        "The measured times scatter.",
        "Clocks change while it runs, or another program uses the GPU.",
        "Lock the clocks, or measure longer: --useSpinWait, --duration.",
        "8 to 11", _TRTEXEC,
    ),
    Message(
        "invalid-values", r"(?P<reason>(?:NaN|Inf) Detected)|Errors detected in output: (?P<name>\S+)",
        "An output holds values that are not finite.",
        "Polygraphy --validate saw NaN or infinity in it.",
        "Find the first such tensor with --trt-outputs mark all, and keep the nodes before it in FP32.",
        "Polygraphy 0.30 and later", "Polygraphy, comparator/comparator.py",
    ),
    # ONNX Runtime and Torch-TensorRT.
    Message(
        "ort-shapes",
        r"TensorRT input: (?P<name>\S+) has no shape specified|"
        r"input\(s\) has no associated shape profiles provided: (?P<reason>.*)",
        "ONNX Runtime's TensorRT provider lacks shapes of tensors.",
        "An input of a subgraph has no shape in the model, or no range in the provider's options.",
        "Run onnxruntime/tools/symbolic_shape_infer.py on the model; with trt_profile_min_shapes, _opt_ and _max_, "
        "name the inputs of every subgraph.",
        "ONNX Runtime 1.12 and later", _ORT, failed=True,
        effect="The session or the inference stops there.",
    ),
    Message(
        "ort-engine",
        r"TensorRT(?:RTX| RTX)? EP (?:failed to (?:create|build)|could not (?:build|deserialize|create)) engine"
        r".*?(?:for fused node: (?P<name>\S+)|$)",
        "ONNX Runtime's TensorRT provider makes no engine of a subgraph.",
        "TensorRT refused the subgraph or the engine in its cache; lines before say why.",
        "Delete the cache of engines after a change of release or GPU; see the error of TensorRT itself.",
        "ONNX Runtime 1.12 and later", _ORT, failed=True,
        effect="The session is not made.",
    ),
    Message(
        "provider-fallback", r"Some nodes were not assigned to the preferred execution providers",
        "Some nodes run on another provider than the preferred one.",
        "The preferred provider has no kernel for them, or they compute shapes, which belong on the CPU.",
        "Make the session with log_severity_level=0, whose log names each node's provider.",
        "ONNX Runtime 1.12 and later", "microsoft/onnxruntime, core/framework/session_state.cc",
    ),
    Message(
        "torch-converter",
        r"[Cc]onversion of function (?P<operator>\S+) not currently supported|"
        r"Unable to convert node: .*? = (?P<operator2>\w+::\w+)",
        "Torch-TensorRT has no converter of {names}.",
        "The operator is in a part of the graph that was to become an engine.",
        "Rewrite the operator, register a converter (torch_tensorrt.dynamo.conversion.dynamo_tensorrt_converter), or "
        "leave it to PyTorch (torch_executed_ops, without require_full_compilation).",
        "Torch-TensorRT 1.0 and later", _TORCH, failed=True,
    ),
    Message(
        "torch-input", r"Expected input tensors to have (?P<reason>(?:type|device) .*)",
        "An input is not what an engine of Torch-TensorRT takes.",
        "It has another type, or is on another device.",
        "Cast or move it (tensor.half(), .cuda()), or compile with torch_tensorrt.Input of that type.",
        "Torch-TensorRT 1.0 and later", "pytorch/TensorRT, core/runtime/execute_engine.cpp",
        effect="This inference does not run.",
    ),
    Message(
        "torch-unsupported",
        r"Unsupported operator: (?P<operator>(?:aten|prim)::\w+)|^[ \t]*- (?P<operator2>(?:aten|prim)::\w+)",
        "Torch-TensorRT does not convert {names}.",
        "There is no converter of the operator; PyTorch runs it, and the graph is cut there.",
        "Rewrite the operator, or register a converter (torch_tensorrt.dynamo.conversion.dynamo_tensorrt_converter).",
        "Torch-TensorRT 1.0 and later", _TORCH,
    ),
    Message(
        "triton-load",
        r"failed to load '[^'\n]+' version \d+: (?P<reason>[^\"\n]*)|"
        r"(?P<reason2>unable to (?:load plan file|create TensorRT) [^|\"\n]*)",
        "Triton does not load a model.",
        "It says why in that line; where TensorRT refuses a plan, its own lines stand before.",
        "Build a plan with the release of TensorRT in the server's image and on its GPU, and let config.pbtxt state "
        "the plan's own shapes, types and batch.",
        "Triton 2.0 and later", "triton-inference-server/tensorrt_backend", failed=True,
        effect="The server does not serve it.",
    ),
    # What follows from another failure.
    Message(
        "run-failed", r"FAILED_EXECUTION|execution context enqueue failed",
        "An inference failed.",
        "These lines only report that; the cause stands in an error before them.",
        "Give the lines before, from the first that is marked as an error.",
        "7 to 11", _REPORTS,
        effect="This inference does not run.",
    ),
    Message(
        "build-failed",
        r"Engine could not be created from network|Building engine failed|Build serialized network failed|"
        r"Engine (?:set up|creation|deserialization) failed|Failed to create engine from model|"
        r"(?i:failed to parse (?:the )?onnx)|Parsing model failed|&&&& FAILED TensorRT|"
        r"buildSerializedNetwork.*Assertion engine(?:Ptr)? != nullptr|"
        r"Network And Config setup failed|'NoneType' object has no attribute 'create_execution_context'|"
        r"Unable to deserialize the TensorRT engine|TRT conversion failed on the subgraph",
        "The build or the loading of an engine failed.",
        "These lines only report that; the cause stands in an error before them.",
        "Give the lines before, from the first that is marked as an error.",
        "7 to 11", _TRTEXEC, failed=True,
    ),
    Message(
        "error",
        r"(?:(?P<call>\w+::\w+): )?Error Code (?P<code>\d+): (?P<kind>[\w ]+?) ?\((?:(?:I\w+Layer )?"
        r"(?P<name>\(Unnamed Layer[^\]\n]*\]|[^\s:()]*[/_][^\s:()]*): )?(?P<reason>.*)",
        "TensorRT reports error {code} ({kind}){place}.",
        "It is none of the messages that rtlab knows.",
        "Give more of the log, with --verbose.",
        "8 to 11", _GUIDE,
        effect="What it stops is not known.",
    ),
    Message(
        "marked-error", rf"(?:{_MARK}) *(?P<reason>(?!FAILED \||Accuracy Summary)\S.*)",
        "An error is reported.",
        "Its line is marked as one, and is none of the messages that rtlab knows.",
        "Give more of the log, with --verbose.",
        "7 to 11", _REPORTS,
        effect="What it stops is not known.",
    ),
)  # fmt: skip

_COMPILED = tuple((m, re.compile(m.pattern)) for m in MESSAGES)
#: Those that other failures explain, or that say less than another of the text.
_GENERAL = ("error", "marked-error", "build-failed")
_OVERLAPS = {
    "run-failed": ("cuda-error", "address", "shape-range", "out-of-memory", "error", "marked-error"),
    "no-output": ("uff", "parser-refusal", "unsupported-operator", "plugin"),
    "triton-load": ("plan-version", "plan-damaged", "plan-device", "plugin"),
    "fp16-weights": ("fp16-subnormal", "fp16-overflow"),
    "provider-fallback": ("provider-partition",),
    "parser-refusal": (
        "zero-point", "sequence", "plugin", "constant-input", "unsupported-operator", "type-mismatch",
        "shape-conflict", "shape-tensor",
    ),
    "dla-fallback": ("dla-reason", "dla-precision", "dla-subgraphs", "dla-dynamic"),
}  # fmt: skip
_TACTIC = re.compile(
    r"(?:(?P<name>\S.*?) \((?P<runner>[^()]*)\) profiling completed in .*?)?Fastest Tactic: (?P<tactic>\S+) Time: inf"
)
_PREFIX = re.compile(r"^\s*(?:\[[^\[\]]{1,60}\]\s*)*")
_BLOCK = re.compile(r'^ ?(?P<key>name|op_type): "(?P<value>.*)"')
_IN_NODE = re.compile(r"In node (?P<index>-?\d+)(?: with name: (?P<name>.*?) and operator: (?P<op>\w*))?")
_PARSING = re.compile(r'While parsing node number \d+ \[(?P<op>\w+)(?: -> "(?P<output>[^"]*)")?')
#: Lines above a refusal in which the node is printed; a node of many inputs or a body takes some.
_ABOVE = 400
#: Names and characters that a sentence quotes.
_QUOTED, _LONGEST = 3, 240
#: Up to here a size is in MiB, as TensorRT 8.3 to 8.6 print it; from here on in bytes.
_MEBIBYTES = 1 << 20


@dataclasses.dataclass
class _Group:
    """The lines of one row of the table."""

    message: Message
    line: int
    text: str
    match: re.Match[str]
    names: dict[str, None] = dataclasses.field(default_factory=dict)
    operator: str = ""
    reasons: dict[str, None] = dataclasses.field(default_factory=dict)
    tactics: dict[str, None] = dataclasses.field(default_factory=dict)
    sizes: list[int] = dataclasses.field(default_factory=list)
    count: int = 0


def find_messages(text: str, numbers: Sequence[int] = ()) -> tuple[MessageMatch, ...]:
    """What the lines of a text say that is in the table, each message once, failures first; empty for other text.

    ``numbers`` are those of its lines where they do not count from 1.
    """
    patterns = [(m, p) for m, p in _COMPILED if re.search(m.pattern, text, re.MULTILINE)]
    groups: dict[str, _Group] = {}
    lines = text.split("\n") if patterns else []
    for number, line in enumerate(lines, 1):
        pair = next(((m, match) for m, p in patterns if (match := p.search(line))), None)
        if pair is None:
            continue
        message, match = pair
        first_number = numbers[number - 1] if numbers else number
        group = groups.setdefault(message.id, _Group(message, first_number, line, match))
        if message.is_parser and MESSAGES.index(message) < MESSAGES.index(group.message):
            # The line behind says what the first one only announces.
            group.message, group.line, group.text, group.match = message, first_number, line, match
        _add_line(group, match, lines, number)
    ids = set(groups)
    has_cause = any(g.message.failed for i, g in groups.items() if i not in _GENERAL)
    general = None if has_cause else next((i for i in _GENERAL if i in ids), None)
    hidden_ids = {i for i in _GENERAL if i != general}
    for i, group in groups.items():
        specials = [groups[special] for special in _OVERLAPS.get(i, ()) if special in ids]
        named = {n for special in specials for n in special.names}
        # What is more general names the node as well.
        for special in specials:
            if not special.names:
                special.names.update(group.names)
        if i == "dla-fallback":
            group.names = {n: None for n in group.names if n not in named}
        if specials and not (i == "dla-fallback" and group.names):
            hidden_ids.add(i)
    matches = [_make_match(g, groups, lines) for i, g in groups.items() if i not in hidden_ids]
    return tuple(sorted(matches, key=lambda m: not m.failed))


def _add_line(group: _Group, match: re.Match[str], lines: Sequence[str], number: int) -> None:
    """Take in one more line of a message."""
    group.count += 1
    fields = {k: v for k, v in match.groupdict().items() if v}
    names = [v for k, v in fields.items() if re.fullmatch(r"(?:name|plugin|operator)\d?", k)]
    if group.message.is_parser:
        name, group.operator = _find_node(lines, number)
        names = [*filter(None, [name]), *names][:1]
    group.names.update(dict.fromkeys(n.strip() for n in names))
    group.reasons.update({v.strip(): None for k, v in fields.items() if k.startswith(("reason", "static"))})
    if "expected" in fields:
        group.reasons[f"expected {fields['expected']}, but it is {fields['actual']}"] = None
    if "tactic" in fields:
        group.tactics[fields["tactic"]] = None
    if "size" in fields:
        size = int(fields["size"][:18])
        group.sizes.append(size << 20 if size < _MEBIBYTES else size)


def _find_node(lines: Sequence[str], number: int) -> tuple[str, str]:
    """The name of the node in a line of the parser or above it, else its first output, operator or number.

    And its operator; both are empty where the lines have none.
    """
    if (stated := _IN_NODE.search(lines[number - 1])) is not None:
        return stated["name"] or stated["op"] or f"node {stated['index']}", stated["op"] or ""
    fields: dict[str, str] = {}
    for line in reversed(lines[max(0, number - _ABOVE) : number]):
        if (block := _BLOCK.match(line)) is not None:
            fields.setdefault(block["key"], block["value"])
        elif (parsing := _PARSING.search(line)) is not None:
            fields.setdefault("output", parsing["output"] or "")
            fields.setdefault("op_type", parsing["op"])
            break
        elif "--- Begin node ---" in line and "name" in fields:
            break
    name = next((fields[k] for k in ("name", "output", "op_type") if fields.get(k)), "")
    return name, fields.get("op_type", "")


def _make_match(group: _Group, groups: Mapping[str, _Group], lines: Sequence[str]) -> MessageMatch:
    message = group.message
    names = drop_partial_names(group.names)
    fields = defaultdict(str, {k: v for k, v in group.match.groupdict().items() if v})
    operator = f"{group.operator} " if len(names) == 1 and group.operator not in names[0] else ""
    fields["names"] = f"{operator}{quote_first(names)}" if names else "a node"
    fields["place"] = f" in {fields['call']}" if fields["call"] else ""
    # The provider asks the parser which nodes it takes; what it refuses stops nothing.
    is_question = message.is_parser and any("onnxruntime:" in line for line in lines)
    cost = (
        _NEXT_PROVIDER if is_question else message.effect or (_NO_ENGINE if message.failed else _UNKNOWN_COST)
    )
    quote = shorten(_PREFIX.sub("", group.text))
    values = [r for r in group.reasons if shorten(r) not in quote][:_QUOTED]
    if group.sizes:
        values.append(f"the largest request is {max(group.sizes):,} bytes")
    if "available" in fields:
        values.append(f"{fields['available']} MB are free")
    if message.id == "insufficient-memory":
        values.append(f"{pluralize(group.count, 'line')}, {pluralize(len(group.tactics), 'tactic')} by name")
    if message.id == "no-implementation":
        values += _list_tactics(names, groups, lines)
    evidence = f"{message.cause} {capitalize('; '.join(values))}" if values else message.cause
    return MessageMatch(
        message.id,
        message.title.format_map(fields),
        cost,
        describe_remedy(message.remedy.format_map(fields), message.source, message.releases),
        f'{evidence.rstrip(".")}. Line {group.line}: "{quote}".',
        names,
        message.failed and not is_question,
        group.line,
        get_product(message.releases),
    )


def _list_tactics(names: Sequence[str], groups: Mapping[str, _Group], lines: Iterable[str]) -> list[str]:
    """What the builder tried for layers without an implementation."""
    tries = [m for line in lines if "Time: inf" in line and (m := _TACTIC.search(line))]
    tries = [
        m for m in tries if m["name"] is None or any(n.startswith(m["name"]) or n in m["name"] for n in names)
    ]
    values = []
    if tries:
        last = tries[-1]
        runner = f" of {last['runner']}" if last["runner"] else ""
        values.append(
            f"the best tactic{runner} has no time ({last['tactic']}, time inf): each of them failed; "
            f"runners tried in this text: {len(tries)}"
        )
    if (memory := groups.get("insufficient-memory")) is not None and memory.sizes:
        values.append(f"memory was short before: {max(memory.sizes):,} bytes were requested")
    return values


def drop_partial_names(names: Iterable[str]) -> tuple[str, ...]:
    """Names once each; one that another begins with was cut off."""
    listed = [n for n in dict.fromkeys(names) if n]
    return tuple(n for n in listed if not any(o != n and len(n) > 12 and o.startswith(n) for o in listed))


def quote_first(names: Sequence[str]) -> str:
    """The first names in quotes, and how many more there are."""
    text = ", ".join(f'"{shorten(n)}"' for n in names[:_QUOTED])
    return f"{text} and {len(names) - _QUOTED} more" if len(names) > _QUOTED else text


def shorten(text: str) -> str:
    """A text of one line up to the length of a quotation."""
    text = text.strip().replace('"', "'")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def capitalize(text: str) -> str:
    """A text with a capital letter first."""
    return text[:1].upper() + text[1:]


def describe_remedy(remedy: str, source: str, releases: str) -> str:
    """A remedy with where it comes from and what it holds for."""
    product = "" if releases[:1].isalpha() else "TensorRT "
    return f"{remedy} Not tried here; from {source}; for {product}{releases}."


def get_product(releases: str) -> str:
    """The program that releases are of; empty for TensorRT, where they begin with a number."""
    return re.split(r" ?\d", releases, maxsplit=1)[0]
