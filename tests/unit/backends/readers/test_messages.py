"""Fragments as people paste them, in the forms of TensorRT 7 to 11 and its neighbours; what is true stands beside."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import TensorProto, helper

import pasted
import rtlab
from rtlab.backends.readers import messages
from rtlab.backends.readers.log import verbose
from rtlab.backends.readers.reports import find_reports
from rtlab.documents.commands import ReadDropped
from rtlab.errors import ReadError
from rtlab.testing import tiny_model


class Fragment(NamedTuple):
    """A text; the first finding's rule, its names, and words of title and evidence. ``rest`` are further rules."""

    text: str
    rule: str
    names: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    rest: tuple[str, ...] = ()


REGION = "{ForeignNode[/enc/Cast_2.../dec/Add_9]}"
FRAGMENTS = {
    # Composed by somebody who had not seen the table.
    "trt10 allocator exception": Fragment(
        "> [E] Error[9]: Error Code: 9: Skipping tactic 0x0000000000000003 due to exception "
        "[tunable_graph.cpp:create:117] autotuning: User allocator error allocating 7516192768-byte buffer",
        "insufficient-memory", (), ("because memory is short",),
    ),
    "trt7 pads": Fragment(
        'While parsing node number 12 [Pad -> "88"]:\n--- Begin node ---\ninput: "80"\ninput: "87"\noutput: "88"\n'
        'op_type: "Pad"\n--- End node ---\nERROR: builtin_op_importers.cpp:2106 In function importPad:\n'
        "[8] Assertion failed: inputs.at(1).is_weights()\n",
        "constant-input", ("88",), ('Pad "88"', "has to be a constant"),
    ),
    "trt10 no address": Fragment(
        "[TRT] IExecutionContext::enqueueV3: Error Code 3: API Usage Error (Parameter check failed, condition: "
        "mContext.profileObliviousBindings.at(profileObliviousIndex) != nullptr. Address is not set for input tensor "
        "depth_map. Call setInputTensorAddress or setTensorAd",
        "address", ("depth_map",), ("without a buffer",),
    ),
    "rtx FP16 flag": Fragment(
        "[TRT] [E] IBuilder::buildSerializedNetwork: Error Code 3: API Usage Error (Parameter check failed, condition: "
        "!config.getFlag(BuilderFlag::kFP16). )",
        "precision-flag",
    ),
    "trt11 FP16 flag": Fragment(
        '  File "build.py", line 4, in <module>\n    config.set_flag(trt.BuilderFlag.FP16)\n'
        "AttributeError: type object 'tensorrt_bindings.tensorrt.BuilderFlag' has no attribute 'FP16'\n",
        "precision-flag",
    ),
    "trt10 another call": Fragment(
        "[TRT] [E] ICudaEngine::createExecutionContext: Error Code 4: Internal Error (something that nobody listed)",
        "error", (), ("ICudaEngine::createExecutionContext: Error Code 4", "TensorRT reports an error"),
    ),
    "placement with a copy": Fragment(
        " VerifyEachNodeIsAssignedToAnEp]  Node(s) placed on [TensorrtExecutionProvider]. Number of nodes: 2\n"
        " VerifyEachNodeIsAssignedToAnEp]   TRTKernel_graph_g_1_0 (TensorrtExecutionProvider_TRTKernel_graph_g_1_0_0)\n"
        " VerifyEachNodeIsAssignedToAnEp]   MemcpyFromHost (Memcpy)\n"
        " VerifyEachNodeIsAssignedToAnEp]  Node(s) placed on [CUDAExecutionProvider]. Number of nodes: 1\n"
        " VerifyEachNodeIsAssignedToAnEp]   ScatterND (/out/ScatterND)\n",
        "provider-partition", ("/out/ScatterND",), ("gets 1 subgraph of the model",), ("provider-copies",),
    ),
    "placement that lists one of three": Fragment(
        " VerifyEachNodeIsAssignedToAnEp]  Node(s) placed on [TensorrtExecutionProvider]. Number of nodes: 3\n"
        " VerifyEachNodeIsAssignedToAnEp]   TRTKernel_graph_g_1_0 (TensorrtExecutionProvider_TRTKernel_graph_g_1_0_0)\n"
        " VerifyEachNodeIsAssignedToAnEp]  Node(s) placed on [CPUExecutionProvider]. Number of nodes: 1\n"
        " VerifyEachNodeIsAssignedToAnEp]   NonZero (/out/NonZero)\n",
        "provider-partition", ("/out/NonZero",), ("3 nodes of the placement, a subgraph or a copy each, are on",),
    ),
    "torch dry run": Fragment(
        "The following ops are currently unsupported or excluded from conversion, and are listed with their op-count "
        "in the graph:\n torch.ops.aten.bucketize.default: 3\n torch.ops.aten.histc.default: 1\n",
        "torch-unsupported", ("torch.ops.aten.bucketize.default", "torch.ops.aten.histc.default"),
        ("3 of torch.ops.aten.bucketize.default",),
    ),
    "trtexec rows of copies": Fragment(
        "[I] Engine built in 31.5 sec.\n"
        "[I] H2D Latency: min = 0.04 ms, max = 0.09 ms, mean = 0.05 ms, median = 0.06 ms\n"
        "[I] GPU Compute Time: min = 2.1 ms, max = 4.7 ms, mean = 2.3 ms, median = 2.2 ms\n",
        "engine-time", (), ("31.5",), ("latency",),
    ),
    # No implementation.
    "trt7 no implementation": Fragment(
        "[TensorRT] ERROR: ../builder/tacticOptimizer.cpp (1523) - TRTInternal Error in computeCosts: 0 (Could not "
        "find any implementation for node conv_4 + relu_5.)",
        "no-implementation", ("conv_4 + relu_5",),
    ),
    "trt7 workspace hint": Fragment(
        "[E] [TRT] Internal error: could not find any implementation for node fc_7, try increasing the workspace size "
        "with IBuilder::setMaxWorkspaceSize()",
        "no-implementation", ("fc_7",),
    ),
    "trt8.2 twice": Fragment(
        f"[E] Error[10]: [optimizer.cpp::computeCosts::2011] Error Code 10: Internal Error (Could not find any "
        f"implementation for node {REGION}.)\n"
        "[E] Error[2]: [builder.cpp::buildSerializedNetwork::609] Error Code 2: Internal Error (Assertion enginePtr != "
        "nullptr failed. )\n[E] Engine could not be created from network\n",
        "no-implementation", (REGION,), ("ends a build", 'Line 3 states: "Engine could not be created from network"'),
    ),
    "trt8.6 with its tactic": Fragment(
        "[03/03/2025-10:00:00] [TRT] [V] /up/Conv_3 (CaskConvolution[0x80000009]) profiling completed in 0.2 seconds. "
        "Fastest Tactic: 0xd15ea5edd15ea5ed Time: inf\n"
        "[03/03/2025-10:00:00] [TRT] [E] 10: Could not find any implementation for node /up/Conv_3.\n",
        "no-implementation", ("/up/Conv_3",), ("Time: inf", "CaskConvolution[0x80000009]", "Line 2"),
    ),
    "trt10 cut off": Fragment(
        "[TRT] [E] IBuilder::buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation "
        "for node {ForeignNode[/a/Mul_1.../b/Soft",
        "no-implementation", ("{ForeignNode[/a/Mul_1.../b/Soft",),
    ),
    "trt11 in computeCosts": Fragment(
        "ERROR: IBuilder::buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation for "
        f"node {REGION}. In computeCosts at /_src/optimizer/common/tactic/optimizer.cpp:4131)",
        "no-implementation", (REGION,),
    ),
    "memory before the failure": Fragment(
        "[W] [TRT] Skipping tactic 2 due to insufficient memory on requested size of 536870912 detected for tactic "
        "0x02.\n[E] [TRT] 10: Could not find any implementation for node up_4.\n",
        "no-implementation",
        ("up_4",),
        ("as printed: 536870912", "Line 2"),
        ("insufficient-memory",),
    ),
    "python logging": Fragment(
        "2026-03-04 11:12:13,456 - builder - ERROR - 10: Could not find any implementation for node head/dense/MatMul.",
        "no-implementation", ("head/dense/MatMul",),
    ),
    "rtx no runner": Fragment(
        "[TRT] [E] [tacticSupply.cpp::getSupportedFormats::48] Error Code 2: Internal Error (Assertion "
        "!layerImpls.empty() failed. /post/NonZero_1 has no runners that implement it In getSupportedFormats at "
        "/_src/optimizer/builder/tacticSupply.cpp:48)",
        "no-runner", ("/post/NonZero_1",), ("TensorRT-RTX lacks some",),
    ),
    "myelin": Fragment(
        "[TRT] [E] 9: Skipping tactic 0x0000000000000000 due to exception [autotuner.cpp:get_best_tactics:1520] "
        "Autotuner: no tactics to implement operation:",
        "myelin-tactics",
    ),
    # Memory.
    "trt8.2 insuficient": Fragment(
        "[W] [TRT] Skipping tactic 0 due to insuficient memory on requested size of 31457280 detected for tactic 0.",
        "insufficient-memory", (), ("as printed: 31457280;",),
    ),
    "trt8.4 in megabytes": Fragment(
        "[TRT] [W] Tactic Device request: 538MB Available: 166MB. Device memory is insufficient to use tactic.\n"
        "[TRT] [W] Skipping tactic 3 due to insuficient memory on requested size of 538 detected for tactic 4.\n",
        "insufficient-memory", (), ("as printed: 538MB and 538;", "Available: 166MB"),
    ),
    "trt10 several": Fragment(
        "".join(
            f"[TRT] [W] UNSUPPORTED_STATE: Skipping tactic {i} due to insufficient memory on requested size of "
            f"{(i + 1) << 28} detected for tactic 0x{i:016x}.\n"
            for i in range(3)
        ),
        "insufficient-memory", (), ("as printed: 805306368;", "3 lines, 3 tactics"),
    ),
    "trt9 of few bytes": Fragment(
        "[TRT] [W] UNSUPPORTED_STATESkipping tactic 6 due to insufficient memory on requested size of 99328 detected "
        "for tactic 0x1f.",
        "insufficient-memory", (), ("as printed: 99328;",),
    ),
    "few bytes": Fragment(
        "[TRT] [W] Requested amount of GPU memory (4096 bytes) could not be allocated.",
        "out-of-memory", (), ("as printed: 4096 bytes",),
    ),
    "trt7 workspace": Fragment(
        "[TensorRT] INFO: Some tactics do not have sufficient workspace memory to run. Increasing workspace size may "
        "increase performance, please check verbose output.",
        "workspace",
    ),
    "out of memory": Fragment(
        "[E] Error[1]: [defaultAllocator.cpp::allocate::21] Error Code 1: Cuda Runtime (out of memory)", "out-of-memory"
    ),
    "requested amount": Fragment(
        "[E] Error[2]: [virtualMemoryBuffer.cpp::resizePhysical::127] Error Code 2: OutOfMemory (no further "
        "information)\n[W] Requested amount of GPU memory (17179869184 bytes) could not be allocated.",
        "out-of-memory", (), ("17179869184 bytes",),
    ),
    "tactic exception": Fragment(
        "[TRT] [V] Skipping tactic 0x00000000000003e8 due to exception cask convolution execution", "tactic-exception"
    ),
    # The parser.
    "trt7 no importer": Fragment(
        "In node 1 (parseGraph): UNSUPPORTED_NODE: No importer registered for op: QLinearMatMul",
        "unsupported-operator", ("node 1",), ("QLinearMatMul",),
    ),
    "trt8 attempt": Fragment(
        "[I] [TRT] No importer registered for op: GridMask. Attempting to import as plugin.", "plugin", ("GridMask",),
        ("takes",),
    ),
    "trt8 plugin creator": Fragment(
        "[E] [TRT] 3: getPluginCreator could not find plugin: SoftMask version: 1", "plugin", ("SoftMask",)
    ),
    "trt8 plugin in a block": Fragment(
        '[E] [TRT] ModelImporter.cpp:720: While parsing node number 12 [Warp -> "warped"]:\n'
        "[E] [TRT] ModelImporter.cpp:721: --- Begin node ---\n"
        '[E] [TRT] ModelImporter.cpp:722: input: "x"\noutput: "warped"\nname: "warp_3"\nop_type: "Warp"\n'
        'attribute {\n  name: "mode"\n  i: 1\n}\n\n'
        "[E] [TRT] ModelImporter.cpp:723: --- End node ---\n"
        "[E] [TRT] ModelImporter.cpp:726: ERROR: builtin_op_importers.cpp:4643 In function "
        "importFallbackPluginImporter:\n"
        '[8] Assertion failed: creator && "Plugin not found, are the plugin name, version, and namespace correct?"\n'
        "[E] Failed to parse onnx file\n",
        "plugin", ("warp_3",),
    ),
    "python plugin": Fragment(
        'RuntimeError: Failed to parse onnx, In node 5 (importFallbackPluginImporter): UNSUPPORTED_NODE: Assertion '
        'failed: creator && "Plugin not found, are the plugin name, version, and namespace correct?"',
        "plugin", ("node 5",),
    ),
    "trt10 registry": Fragment(
        "[TRT] [E] IPluginRegistry::getCreator: Error Code 4: API Usage Error (Cannot find plugin: DeformCrop, "
        "version: 1, namespace:.)",
        "plugin", ("DeformCrop",),
    ),
    "trt10 sequence": Fragment(
        "In node 31 with name: /list/at and operator: SequenceAt (checkSequenceAt): UNSUPPORTED_NODE: Assertion "
        "failed: false",
        "sequence", ("/list/at",),
    ),
    "type of a weight": Fragment(
        "In node -1 with name:  and operator:  (importModel): UNSUPPORTED_NODE_DATATYPE: Found unsupported datatype "
        "(15) when importing initializer: twiddle.table",
        "parser-type", ("twiddle.table",), ("15 COMPLEX128",),
    ),
    "trt8 split to sequence": Fragment(
        "In node 9 (parseGraph): UNSUPPORTED_NODE: No importer registered for op: SplitToSequence", "sequence",
        ("node 9",),
    ),
    "zero point": Fragment(
        'name: "act_Quantize"\nop_type: "QuantizeLinear"\n'
        "[E] [TRT] ModelImporter.cpp:777: ERROR: builtin_op_importers.cpp:1177 In function QuantDequantLinearHelper:\n"
        '[6] Assertion failed: shiftIsAllZeros(zeroPoint) && "TRT only supports symmetric quantization - zeroPt"',
        "zero-point", ("act_Quantize",),
    ),
    "zero point alone": Fragment(
        "[6] Assertion failed: shiftIsAllZeros(zeroPoint): Non-zero zero po", "zero-point"
    ),
    "invalid node": Fragment(
        "ERROR: Failed to parse the ONNX file.\nIn node 111 (parseGraph): INVALID_NODE: Invalid Node - clip_8\n",
        "parser-refusal", ("node 111",), ("Invalid Node - clip_8",),
    ),
    "trt10 refusal": Fragment(
        "In node 40 with name: /r/Resize and operator: Resize (checkResize): UNSUPPORTED_NODE: Assertion failed: mode "
        '!= "cubic"',
        "parser-refusal", ("/r/Resize",), ("cubic",),
    ),
    "while parsing": Fragment(
        'ModelImporter.cpp:771: While parsing node number 77 [Loop -> "beam"]:', "parser-refusal", ("beam",)
    ),
    "int64 binding": Fragment(
        "[W] [TRT] ModelImporter.cpp:503: Make sure input token_ids has Int64 binding.", "int64-binding", ("token_ids",)
    ),
    "int64 weights": Fragment(
        "[W] [TRT] onnx2trt_utils.cpp:374: Your ONNX model has been generated with INT64 weights, while TensorRT does "
        "not natively support INT64. Attempting to cast down to INT32.",
        "int64-weights",
    ),
    # Types.
    "layernorm 8": Fragment(
        "[W] [TRT] Running layernorm after self-attention in FP16 may cause overflow.", "layernorm-fp16"
    ),
    "layernorm torch": Fragment(
        "WARNING:torch_tensorrt [TensorRT Conversion Context]:Detected layernorm nodes in FP16.", "layernorm-fp16"
    ),
    "subnormal 8.4": Fragment(
        "[TRT] [W] Weights [name=stem + act.weight] had the following issues when converted to FP16:\n"
        "[TRT] [W]  - Subnormal FP16 values detected. \n",
        "fp16-subnormal", ("stem + act.weight",),
    ),
    "subnormal 8.5": Fragment(
        "[W] [TRT] TensorRT encountered issues when converting weights between types and that could affect accuracy.\n"
        "[W] [TRT] - 46 weights are affected by this issue: Detected subnormal FP16 values.\n"
        "[W] [TRT] - 12 weights are affected by this issue: Detected values less than smallest positive FP16 subnormal "
        "value and converted them to the FP16 minimum subnormalized value.\n",
        "fp16-subnormal", (), ("46 weights",),
    ),
    "weights 8.4": Fragment(
        "[W] [TRT] Weights [name=head.bias] had the following issues when converted to FP16:", "fp16-weights",
        ("head.bias",),
    ),
    "overflow": Fragment(
        "[W] [TRT] - 2 weights are affected by this issue: Detected finite FP32 values which would overflow in FP16 "
        "and converted them to the closest finite FP16 value.",
        "fp16-overflow", (), ("2 weights",),
    ),
    "strong types": Fragment(
        "[E] [TRT] ITensor::getDimensions: Error Code 4: API Usage Error (/mix/Add: ElementWiseOperation SUM must have "
        "same input types. But they are of types Float and Half.)",
        "type-mismatch", ("/mix/Add",), ("Float and Half",),
    ),
    "int8 scale": Fragment(
        "[W] [TRT] Missing scale and zero-point for tensor pool_out, expect fall back to non-int8 implementation for "
        "any layer consuming or producing given tensor",
        "int8-scale", ("pool_out",),
    ),
    "calibration": Fragment(
        "[E] 1: Unexpected exception Calibration table does not match calibrator algorithm type.", "calibration-table"
    ),
    # DLA.
    "dla 7": Fragment(
        "WARNING: Default DLA is enabled but layer act_9 is not running on DLA, falling back to GPU.\n"
        "WARNING: Default DLA is enabled but layer act_11 is not running on DLA, falling back to GPU.\n",
        "dla-fallback", ("act_9", "act_11"),
    ),
    "dla 8.5": Fragment(
        "[W] [TRT] Layer '/m/Gather' (GATHER): Unsupported on DLA. Switching this layer's device type to GPU.\n",
        "dla-fallback", ("/m/Gather",),
    ),
    "dla reason": Fragment(
        "[W] [TRT] /m/Pow_2: DLA cores do not support POW ElementWise operation.", "dla-reason", ("/m/Pow_2",),
        ("POW ElementWise",),
    ),
    "dla concat": Fragment(
        "WARNING: route_8: Concatenation on DLA requires at least two inputs.", "dla-reason", ("route_8",)
    ),
    "dla precision": Fragment(
        "[W] [TRT] DLA only supports FP16 and Int8 precision type. Switching gather_3 device type to GPU.",
        "dla-precision", ("gather_3",),
    ),
    "dla subgraphs": Fragment(
        "WARNING: [TRT]: DLA supports only 16 subgraphs per DLA core. Switching to GPU for layer conv_6",
        "dla-subgraphs", ("conv_6",), ("(16)",),
    ),
    "dla refused": Fragment(
        "May  2 10:11:12 board seg[77]: [TRT] [E] 9: Default DLA is enabled but layer /u/Resize_2 is not supported on "
        "DLA "
        "and falling back to GPU is not enabled.\n",
        "dla-refused", ("/u/Resize_2",), ("fallback to the GPU is not enabled", "ends a build"),
    ),
    "dla dynamic": Fragment(
        "[W] [TRT] DLA Layer stem/Relu does not support dynamic shapes in any dimension.", "dla-dynamic", ("stem/Relu",)
    ),
    "dla none": Fragment(
        "[W] [TRT] setDefaultDeviceType was called but no layer in the network can run on DLA.", "dla-none"
    ),
    "dla twice": Fragment(
        "[W] [TRT] /p/Pool: DLA only supports windows in the range of [1-8].\n"
        "[W] [TRT] Default DLA is enabled but layer /p/Pool is not supported on DLA, falling back to GPU.\n",
        "dla-reason", ("/p/Pool",),
    ),
    "dla of two": Fragment(
        "[W] [TRT] /p/Pool: DLA only supports windows in the range of [1-8].\n"
        "[W] [TRT] Default DLA is enabled but layer /p/Pool is not supported on DLA, falling back to GPU.\n"
        "[W] [TRT] Default DLA is enabled but layer /u/Resize is not supported on DLA, falling back to GPU.\n",
        "dla-reason", ("/p/Pool",), (), ("dla-fallback",),
    ),
    # Caches, plans, libraries.
    "cache 8.0": Fragment(
        "WARN TRT: Detected invalid timing cache, setup a local cache instead trt_utils.cpp:252", "timing-cache-new"
    ),
    "cache 8.6": Fragment("[Error][TRT] 4: The timing cache will not be used!", "timing-cache"),
    "plan 7": Fragment(
        "[TensorRT] ERROR: 6: The engine plan file is not compatible with this version of TensorRT, expecting library "
        "version 8.2.3 got 8.2.1, please rebuild.",
        "plan-version", (), ("expecting library version 8.2.3 got 8.2.1",),
    ),
    "plan 10": Fragment(
        "[E] IRuntime::deserializeCudaEngine: Error Code 1: Serialization (Serialization assertion stdVersionRead == "
        "kSERIALIZATION_VERSION failed.Version tag does not match. Note: Current Version: 240, Serialized Engine "
        "Version: 239)\n[E] Engine deserialization failed\n",
        "plan-version", (), ("another build of TensorRT", "Serialized Engine Version: 239"),
    ),
    "plan magic": Fragment(
        "[E] Error Code 1: Serialization (Serialization assertion magicTagRead == kMAGIC_TAG failed.Magic tag does "
        "not match)",
        "plan-damaged",
    ),
    "plan device": Fragment(
        "6: The engine plan file is generated on an incompatible device, expecting compute 8.6 got compute 7.5, "
        "please rebuild.",
        "plan-device", (), ("expecting compute 8.6 got compute 7.5",),
    ),
    "plan model": Fragment(
        "[W] [TRT] Using an engine plan file across different models of devices is not recommended and is likely to "
        "affect performance or even cause errors.",
        "plan-model",
    ),
    "cudnn": Fragment(
        "[W] [TRT] TensorRT was linked against cuDNN 8.6.0 but loaded cuDNN 8.4.1", "library-version", (),
        ("release of cuDNN", "but loaded cuDNN 8.4.1"),
    ),
    "cublas of myelin": Fragment(
        "[TensorRT] ERROR: myelin/myelinGraphContext.h (26) - Myelin Error in MyelinGraphContext: 1 "
        "(myelinVersionMismatch : Compiled against cuBLAS 11.4.1.0 but running against cuBLAS 11.2.1.0.",
        "library-version", (), ("release of cuBLAS", "cuBLAS 11.4.1.0 but running against"),
    ),
    "plugin of a plan alone": Fragment(
        "ERROR: [TRT]: 1: Error Code 1: Serialization (Cannot deserialize plugin since corresponding IPluginCreator "
        "not "
        "found in Plugin Registry)\n",
        "plugin", (), ("The plan needs a plugin",),
    ),
    "plugin of a plan": Fragment(
        "ERROR: [TRT]: 3: getPluginCreator could not find plugin: SLOT_TRT version: 1\nERROR: [TRT]: 1: Error Code 1: "
        "Serialization (Cannot deserialize plugin since corresponding IPluginCreator not found in Plugin Registry)\n"
        "ERROR: [TRT]: 4: Error Code 4: Internal Error (Engine deserialization failed.)\n",
        "plugin", ("SLOT_TRT",), ("a plan needs the plugins",),
    ),
    "missing library": Fragment(
        "libnvinfer.so.10: cannot open shared object file: No such file or directory", "library-missing",
        ("libnvinfer.so.10",),
    ),
    "driver": Fragment("[E] [TRT] 1: CUDA initialization failure with error: 35", "cuda-start", (), ("35",)),
    # Shapes.
    "no profile": Fragment(
        "[E] Error[4]: [network.cpp::validate::2671] Error Code 4: Internal Error (Network has dynamic or shape "
        "inputs, but no optimization profile has been defined.)",
        "no-profile",
    ),
    "range": Fragment(
        "[E] 3: [executionContext.cpp::setInputShape::2278] Error Code 3: API Usage Error (Parameter check failed, "
        "condition: satisfyProfile. Set dimension [9,3,64,64] for tensor img does not satisfy any optimization "
        "profiles.)",
        "shape-range", ("img",),
    ),
    "other input name": Fragment(
        '[E] Cannot find input tensor with name "img" in the network inputs! Please make sure the input tensor names '
        "are correct.\n[E] Network And Config setup failed\n",
        "input-name", ("img",),
    ),
    "static shapes": Fragment(
        "[E] Static model does not take explicit shapes since the shape of inference tensors will be determined by the "
        "model itself",
        "static-shapes",
    ),
    "default shapes": Fragment(
        "[W] Dynamic dimensions required for input: ids, but no shapes were provided. Automatically overriding shape "
        "to: 1x77\n[W] Shape missing for input with dynamic shape: maskAutomatically setting shape to: 1x1\n",
        "default-shapes", ("ids", "mask"), ("those of these shapes", "1x1"),
    ),
    "trt7 above the profile": Fragment(
        "[TensorRT] ERROR: Parameter check failed at: engine.cpp::setBindingDimensions::977, condition: "
        "profileMaxDims.d[i] >= dimensions.d[i]",
        "shape-range", (), ("not one that the engine was built for",),
    ),
    "static dimension": Fragment(
        "[TRT] [E] IExecutionContext::setInputShape: Error Code 3: API Usage Error (Parameter check failed, condition: "
        "engineDims.d[i] == dims.d[i]. Static dimension mismatch while setting input shape for cloud. Set dimensions "
        "are [2,9]. Expected dimensions are [1,9].)",
        "shape-range", ("cloud",), ("[2,9]",),
    ),
    "trt7 batch": Fragment(
        "[TensorRT] ERROR: Parameter check failed at: engine.cpp::enqueue::387, condition: batchSize > 0 && batchSize "
        "<= mEngine.getMaxBatchSize(). Note: Batch size was: 6, but engine max batch size was: 2",
        "shape-range", (), ("max batch size was: 2",),
    ),
    "shapes that contradict": Fragment(
        "[E] Error[4]: [graphShapeAnalyzer.cpp::analyzeShapes::1285] Error Code 4: Miscellaneous (IElementWiseLayer "
        "Mul_77: broadcast dimensions must be conformable)\n[E] [TRT] ModelImporter.cpp:773: While parsing node number "
        '77 [Mul -> "91"]:\n',
        "shape-conflict", ("Mul_77",),
    ),
    "shapes of a profile": Fragment(
        "[TRT] [E] 4: [shapeCompiler.cpp::evaluateShapeChecks::911] Error Code 4: Internal Error (kOPT values for "
        "profile 0 violate shape constraints: reshape would change volume. IShuffleLayer Reshape_40: reshaping failed "
        "for tensor: 512)",
        "shape-conflict", ("Reshape_40",), ("profile",),
    ),
    "torch layers": Fragment(
        "ERROR: [Torch-TensorRT TorchScript Conversion Context] - 4: [graphShapeAnalyzer.cpp::analyzeShapes::1285] "
        "Error Code 4: Miscellaneous (IElementWiseLayer %46 : Tensor = aten::add(%4, %5, %1) # /m.py:189:41: broadcast "
        "dimensions must be conformable)",
        "shape-conflict",
    ),
    "shape tensor": Fragment(
        "[E] [graph.cpp::symbolicExecute::535] Error Code 4: Internal Error (/pick/OneHot: an IIOneHotLayer cannot be "
        "used to compute a shape tensor)",
        "shape-tensor", ("/pick/OneHot",),
    ),
    "unnamed layer": Fragment(
        "[E] [TRT] 4: [graphShapeAnalyzer.cpp::needTypeAndDimensions::2212] Error Code 4: Internal Error ((Unnamed "
        "Layer* 42) [ElementWise]: output shape can not be computed)",
        "error", ("(Unnamed Layer* 42) [ElementWise]",), ("output shape can not",),
    ),
    "uff": Fragment(
        "[TensorRT] ERROR: UffParser: Validator error: net/up/ResizeBilinear: Unsupported operation _ResizeBilinear\n"
        "[TensorRT] ERROR: Network must have at least one output\n",
        "uff", ("net/up/ResizeBilinear",), ("_ResizeBilinear",),
    ),
    "no output": Fragment(
        "[E] [TRT] 4: [network.cpp::validate::2959] Error Code 4: Internal Error (Network must have at least one "
        "output)",
        "no-output",
    ),
    "trt7 says first that it will say": Fragment(
        'While parsing node number 5 [Resize -> "up"]:\nERROR: builtin_op_importers.cpp:25 In function importResize:\n'
        '[8] Assertion failed: (mode == "nearest") && "only nearest"\n',
        "parser-refusal", ("up",), ("reports an error at Resize", "Line 3"),
    ),
    # The GPU, CUDA, Python.
    "gpu too new": Fragment(
        "[E] Error[9]: IBuilder::buildSerializedNetwork: Error Code 9: API Usage Error (Target GPU SM 120 is not "
        "supported by this TensorRT release.)",
        "gpu-unsupported", (), ("SM 120",),
    ),
    "gpu type": Fragment(
        "[W] [TRT] Half2 support requested on hardware without native FP16 support, performance will be negatively "
        "affected.",
        "gpu-type", (), ("no native support of FP16",),
    ),
    "gpu without a type": Fragment(
        "[E] Error[9]: Error Code 9: Internal Error (Networks with QuantizeLayer/DequantizeLayer layers require "
        "hardware with Int8 support.)\n[E] Engine could not be created from network\n",
        "gpu-type", (), ("support of Int8", "could not be created"),
    ),
    "scratch of a plugin": Fragment(
        "[TRT] [E] Error Code 4: Internal Error (Internal error: plugin node a/attention/PLUGIN_V2_Paged_0 requires "
        "98784247808 bytes of scratch space, but only 25769803776 is available.",
        "plugin-memory", ("a/attention/PLUGIN_V2_Paged_0",), ("98784247808 bytes",),
    ),
    "formats of a plugin": Fragment(
        "[I] [TRT] No importer registered for op: RollWindow. Attempting to import as plugin.\n"
        "[I] [TRT] Successfully created plugin: RollWindow\n"
        "[E] [TRT] RollWindow_93: could not find any supported formats consistent with input/output data types\n"
        "[E] Engine creation failed\n",
        "plugin-formats", ("RollWindow_93",), (), ("plugin",),
    ),
    "bound to nothing": Fragment(
        "[E] Error[3]: IExecutionContext::executeV2: Error Code 3: API Usage Error (Parameter check failed, condition: "
        'nullPtrAllowed. Tensor "lidar" is bound to nullptr, which is allowed only for an empty input tensor)',
        "address", ("lidar",),
    ),
    "refit": Fragment(
        "[TRT] [E] 3: [refit.cpp::createInferRefitter_INTERNAL::1209] Error Code 3: API Usage Error (Parameter check "
        "failed at: optimizer/std/refit.cpp::createInferRefitter_INTERNAL::1209, condition: e.isRefittable()",
        "refit",
    ),
    "cuda 7": Fragment(
        "[TensorRT] ERROR: ../rtSafe/cuda/reformat.cu (925) - Cuda Error in NCHWToNCHHW2: 400 (invalid resource "
        "handle)\n[TensorRT] ERROR: FAILED_EXECUTION: std::exception\n",
        "cuda-error", (), ("400 (invalid resource handle)",),
    ),
    "cuda 10": Fragment(
        "[TRT] [E] IExecutionContext::enqueueV3: Error Code 1: Cuda Driver (invalid resource handle)", "cuda-error"
    ),
    "an inference": Fragment(
        "Status Message: TensorRT EP execution context enqueue failed.", "build-failed", (), ("states a failure",)
    ),
    "lazy loading": Fragment("[W] [TRT] CUDA lazy loading is not enabled. Enabling it can", "lazy-loading"),
    "python 10": Fragment(
        "    n = engine.num_bindings\nAttributeError: 'tensorrt_bindings.tensorrt.ICudaEngine' object has no attribute "
        "'num_bindings'\n",
        "python-api", (), ("ICudaEngine has no num_bindings",),
    ),
    "no scales": Fragment(
        "[E] 4: [standardEngineBuilder.cpp::initCalibrationParams::1402] Error Code 4: Internal Error (Calibration "
        "failure occurred with no scaling factors detected. This could be due to no int8 calibrator)",
        "no-scales",
    ),
    "no file": Fragment("[E] Error opening engine file: built/net.plan", "file", (), ('"built/net.plan"',)),
    "windows library": Fragment(
        'ProviderLibrary::Get [ONNXRuntimeError] : 1 : FAIL : LoadLibrary failed with error 126 "" when trying to load '
        '"D:\\py\\capi\\onnxruntime_providers_tensorrt.dll"',
        "library-missing", ("onnxruntime_providers_tensorrt.dll",),
    ),
    "marked by TensorRT": Fragment(
        "[01/20/2026-11:02:42] [E] [TRT] Something that nobody listed: 7 of 8.\n"
        "[01/20/2026-11:02:42] [E] Engine set up failed\n",
        "error", (), ("TensorRT reports an error", "nobody listed", 'Line 2 states: "Engine set up failed"'),
    ),
    "marked by ONNX Runtime": Fragment(
        "2026-08-16 05:40:41.19 [E:onnxruntime:Default, tensorrt_execution_provider.h:84 log] [2026-08-16 05:40:41   "
        "ERROR] Something else",
        "error", (), ("ONNX Runtime reports an error",),
    ),
    "marked by DLA": Fragment("NVMEDIA_DLA : 1686, ERROR: runtime loadBare failed. err: 0x6.", "dla-run"),
    "triton": Fragment(
        'E0611 08:12:44.12 1 model_lifecycle.cc:638] "failed to load \'plates\' version 2: Internal: unable to load '
        'plan file to auto complete config: /m/plates/2/model.plan"',
        "triton-load", (), ("unable to load plan file", 'model "plates"'),
    ),
    "triton's list of models": Fragment(
        "| Model | Version | Status |\n| meter_1 | 3 | UNAVAILABLE: Invalid argument: unable to load model 'meter_1', "
        "TensorRT backend supports only GPU device |\n| words   | 1 | READY |\n",
        "triton-load", (), ('Triton does not load model "meter_1"', "supports only GPU device"),
    ),
    "nsight import": Fragment(
        "Importer error status: Importation failed.\nImport Failed with unexpected exception: /dvs/q/main.cpp(34): "
        'Throw in function f\n  Value: "Wrong event order has been detected when adding events"\n',
        "nsight-import", (), ("wrong event order",),
    ),
    "nsight without kernels": Fragment(
        "SKIPPED: p.sqlite does not contain CUDA kernel data.\nSKIPPED: p.sqlite does not contain GPU memory data.",
        "nsight-empty", ("CUDA kernel", "GPU memory"), ('no data of "CUDA kernel", "GPU memory"',),
    ),
    # trtexec without --verbose.
    "workspace option": Fragment(
        "&&&& RUNNING TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=m.onnx --workspace 2048\n"
        "[E] Unknown option: --workspace 2048\n",
        "unknown-option", ("--workspace 2048",),
    ),
    "failed alone": Fragment(
        "&&&& FAILED TensorRT.trtexec [TensorRT v100300] # trtexec --onnx=m.onnx", "build-failed", (), ("FAILED",)
    ),
    "unknown error": Fragment(
        "[E] Error[3]: Error Code 3: API Usage Error (Parameter check failed, condition: count > 0)", "check", (),
        ("refuses an argument", "count > 0", "does not say what it stops"),
    ),
    "built": Fragment("[I] Engine built in 41.27 sec.", "engine-time", (), ("41.27 s",)),
    "latency 8": Fragment(
        "[I] Throughput: 311.5 qps\n[I] Latency: min = 3.01 ms, max = 4.5 ms, mean = 3.22 ms, median = 3.2 ms, "
        "percentile(90%) = 3.4 ms\n[I] Enqueue Time: min = 0.1 ms, max = 0.3 ms, mean = 0.2 ms, median = 0.21 ms\n[I] "
        "GPU Compute Time: min = 2.9 ms, max = 4.1 ms, mean = 3.05 ms, median = 3.04 ms, percentile(90%) = 3.2 ms\n",
        "latency", (), ("3.04 ms", "311.5 inferences per second", "Latency median 3.2 ms, percentile(90%) = 3.4 ms"),
    ),
    "latency 7": Fragment(
        "[I] Host Latency\n[I] min: 1.1 ms (end to end 1.2 ms)\n[I] median: 1.25 ms (end to end 2.2 ms)\n"
        "[I] GPU Compute\n[I] min: 0.9 ms\n[I] median: 0.98 ms\n",
        "latency", (), ("0.98 ms", "Host Latency median 1.25 ms"),
    ),
    "enqueue": Fragment(
        "[W] * Throughput may be bound by Enqueue Time rather than GPU Compute and the GPU may be under-utilized.",
        "enqueue-bound", (), ("may wait",),
    ),
    "unstable": Fragment(
        "[W] * GPU compute time is unstable, with coefficient of variance = 7.31%.", "unstable-time", (), ("7.31%",)
    ),
    # Polygraphy.
    "polygraphy one line": Fragment(
        "[E]         FAILED | Output: 'probs' | Difference exceeds tolerance (rel=1e-05, abs=1e-05)",
        "comparison", ("probs",), ("1 of 1",),
    ),
    "polygraphy old": Fragment(
        "[I]     Comparing Output: 'mid' (dtype=float32, shape=(1, 8)) with 'mid' (dtype=float32, shape=(1, 8))\n"
        "[I]         Absolute Difference | Stats: mean=0.2, std-dev=0.1, max=1.75 at (0, 3)\n"
        "[E]         FAILED | Difference exceeds tolerance (rel=1e-05, abs=1e-05)\n",
        "comparison", ("mid",), ("max=1.75",),
    ),
    "polygraphy summary": Fragment(
        "[E]     FAILED | Mismatched outputs: ['deep', 'out']", "comparison", ("deep",), ("2 of 2",)
    ),
    "polygraphy passed": Fragment(
        "[I]         PASSED | Output: 'out' | Difference is within tolerance (rel=0.1, abs=0.1)", "comparison",
        ("out",),
        ("prints PASSED",),
    ),
    "polygraphy nan": Fragment(
        "[E]     NaN Detected | One or more NaNs were encountered in this output", "invalid-values"
    ),
    # ONNX Runtime, Torch-TensorRT.
    "ort whole": Fragment(
        "[I:onnxruntime:, tensorrt_execution_provider.cc:1999 GetCapability] [TensorRT EP] Whole graph will run on "
        "TensorRT execution provider",
        "provider-partition", (), ("1 subgraph",),
    ),
    "ort copies": Fragment(
        "2025-02-02 10:00:00.1 [I:onnxruntime:, transformer_memcpy.cc:329 AddCopyNode] Add MemcpyToHost before "
        "/h/Mul_0 for CUDAExecutionProvider\n2025-02-02 10:00:00.2 [W:onnxruntime:, transformer_memcpy.cc:74 "
        "ApplyImpl] 1 Memcpy nodes are added to the graph main for CUDAExecutionProvider. It might have negative "
        "impact on performance",
        "provider-copies", ("/h/Mul_0",), ("1 copy",),
    ),
    "ort retry": Fragment(
        "EP Error something odd when using ['TensorrtExecutionProvider', 'CPUExecutionProvider']\n"
        "Falling back to ['CPUExecutionProvider'] and retrying.\n",
        "error", (), ("something odd",), ("provider-retry",),
    ),
    "ort fallback": Fragment(
        "[W:onnxruntime:, session_state.cc:1263 VerifyEachNodeIsAssignedToAnEp] Some nodes were not assigned to the "
        "preferred execution providers which may or may not have an negative impact on performance.",
        "provider-fallback",
    ),
    "ort engine": Fragment(
        "[ONNXRuntimeError] : 11 : EP_FAIL : TensorRT EP failed to create engine from network for fused node: "
        "TRTKernel_graph_g_77_0",
        "ort-engine", ("TRTKernel_graph_g_77_0",),
    ),
    "ort shapes": Fragment(
        "[ONNXRuntimeError] : 1 : FAIL : TensorRT input: /n/Gather_output_0 has no shape specified. Please run shape "
        "inference on the onnx model first.",
        "ort-shapes", ("/n/Gather_output_0",),
    ),
    "torch exception": Fragment(
        "torch_tensorrt.dynamo.conversion._TRTInterpreter.UnsupportedOperatorException: Conversion of function "
        "torch._ops.aten.aten::_fft_r2c not currently supported!",
        "torch-converter", ("torch._ops.aten.aten::_fft_r2c",), ("ends the compilation",),
    ),
    "torch input": Fragment(
        "Expected input tensors to have type Half, found type float", "torch-input", (), ("Half",)
    ),
    "torch script": Fragment(
        "INFO: [Torch-TensorRT] - Method requested cannot be compiled end to end by Torch-TensorRT.TorchScript.\n"
        "Unsupported operators listed below:\n  - aten::fft_rfft(Tensor self) -> Tensor\n"
        "  - prim::PythonOp(...) -> ...\n\nDEBUG: done\n",
        "torch-unsupported", ("aten::fft_rfft", "prim::PythonOp"),
    ),
    "torch dynamo": Fragment(
        "DEBUG:torch_tensorrt.dynamo.partitioning._adjacency_partitioner:\n"
        "Number of TensorRT-Accelerated Engines Generated: 3\n"
        "Unsupported or Excluded Nodes:\n- torch.ops.aten.nonzero.default + Operator Count: 2\n",
        "torch-unsupported", ("torch.ops.aten.nonzero.default",), ("3 engines",),
    ),
    # Kinds that public reports show, in own words where the pattern leaves room.
    "bool outside a region": Fragment(
        "[E] 2: Error Code 2: Internal Error (Slice_31 requires bool I/O but node can not be handled by Myelin.)",
        "bool-layer", ("Slice_31",),
    ),
    "calibrator beside pairs": Fragment(
        "[W] [TRT] Calibrator won't be used in explicit precision mode. Use Q/DQ layers instead.", "calibrator-ignored"
    ),
    "kernel image": Fragment(
        "[E] [TRT] 1: Error Code 1: Cuda Runtime (no kernel image is available for execution on the device)",
        "cuda-kernel-image",
    ),
    "deepstream batch": Fragment(
        "0:00:02.1 71 0x5 WARN nvinfer gstnvinfer.cpp:635:gst_nvinfer_logger:<gie> NvDsInferContext[UID 1]: Backend "
        "has maxBatchSize 1 whereas 4 has been requested",
        "deepstream-batch", (), ("maxBatchSize 1 whereas 4",),
    ),
    "deepstream boxes": Fragment(
        "0:00:09.3 18 0xa ERROR nvinfer gstnvinfer.cpp:676:gst_nvinfer_logger:<gie> NvDsInferContext[UID 1]: Error in "
        "NvDsInferContextImpl::parseBoundingBox() <a.cpp:60> [UID = 1]: Could not find output coverage layer for "
        "parsing",
        "deepstream-parser",
    ),
    "deepstream builds": Fragment(
        "0:00:03.2 8 0xa WARN nvinfer gstnvinfer.cpp:681:gst_nvinfer_logger:<gie> NvDsInferContext[UID 1]: "
        "deserialize backend context from engine from file :/m/a.engine failed, try rebuild\n0:06:41.1 8 0xa INFO "
        "nvinfer gstnvinfer.cpp:684:gst_nvinfer_logger:<gie> NvDsInferContext[UID 1]: serialize cuda engine to file: "
        "/m/b.engine successfully\n",
        "deepstream-rebuild", (), (), ("outcome",),
    ),
    "default stream": Fragment("[TRT] [W] Using default stream in enqueueV3() may lead to", "default-stream"),
    "deprecated flag": Fragment("[TRT] [W] profileSharing is on. This flag is deprecated and has no effect.",
    "deprecated"),
    "double": Fragment("[W] [TRT] x.cpp:1: Your model has been generated with double-typed weights", "double-weights"),
    "two flags": Fragment(
        "[E] Error[3]: Error Code 3: API Usage Error (Parameter check failed at: a.cpp::setFlag::65, condition: x. "
        "kPREFER_PRECISION_CONSTRAINTS cannot be set if kOBEY_PRECISION_CONSTRAINTS is set.",
        "flag-conflict", (), ("kPREFER_PRECISION_CONSTRAINTS and kOBEY_PRECISION_CONSTRAINTS",),
    ),
    "capture": Fragment("[E] [TRT] CUDA ERROR: cudaErrorStreamCaptureInvalidated (901)", "graph-capture"),
    "weights of another network": Fragment(
        "[E] [TRT] 3: (Unnamed Layer* 163) [Convolution]:kernel weights has count 26542 but 19906 was expected",
        "weights-count", ("(Unnamed Layer* 163) [Convolution]",), ("count 26542",),
    ),
    "kernel of a library": Fragment(
        "[TRT] [E] IExecutionContext::executeV2: Error Code 1: Cask (invalid resource handle)", "kernel-library", (),
        ("Cask, a library of kernels", "invalid resource handle"),
    ),
    "error in two lines": Fragment(
        "[TRT] [E] IBuilder::buildSerializedNetwork: Error Code 4: API Usage Error\n  (Network has dynamic or shape "
        "inputs, but no optimization profile has been defined.)\n",
        "no-profile",
    ),
    "layers without names": Fragment(
        "[TRT] [E] 10: Error Code 10: Internal Error (Could not find any implementation for node (Unnamed Layer* 8) "
        "[Convolution] + PWN((Unnamed Layer* 9) [Constant]).)",
        "no-implementation", ("(Unnamed Layer* 8) [Convolution] + PWN((Unnamed Layer* 9) [Constant])",),
    ),
    "a node that is printed": Fragment(
        '[E] [TRT] ModelImporter.cpp:780: While parsing node number 36 [Conv -> "370"]:\n'
        '[E] [TRT] ModelImporter.cpp:781: --- Begin node ---\n[E] [TRT] ModelImporter.cpp:782: input: "369"\n'
        'output: "370"\nname: "Conv_36"\nop_type: "Conv"\n[E] [TRT] ModelImporter.cpp:783: --- End node ---\n'
        "[E] [TRT] ModelImporter.cpp:785: ERROR: ModelImporter.cpp:179 In function parseGraph:\n"
        "[6] Invalid Node - Conv_36\n",
        "parser-refusal", ("Conv_36",), ("Line 9",),
    ),
    "branches": Fragment(
        "[TRT] [E] Error Code 4: API Usage Error (IConditionalOutputLayer /dec/If_Out: Must have inputs with equal "
        "ranks)",
        "if-shapes", ("/dec/If_Out",), ("equal ranks",),
    ),
    "branches of two ranks": Fragment(
        "[TRT] [E] ITensor::getDimensions: Error Code 4: API Usage Error (/pos/If_Out: IIfConditionalOutputLayer "
        "inputs must have the same shape. Shapes are [3] and [1].)",
        "if-shapes", ("/pos/If_Out",), ("Shapes are [3] and [1]",),
    ),
    "boolean operation": Fragment(
        "[TRT] [E] 4: [layers.cpp::validate::2304] Error Code 4: Internal Error (mask_And: operation AND requires "
        "boolean inputs.)",
        "input-type", ("mask_And",),
    ),
    "check within": Fragment(
        "[E] Error[2]: [checkSanity.cpp::checkSanity::148] Error Code 2: Internal Error (Assertion a == b failed. )",
        "internal-check", (), ("a == b",),
    ),
    "cudnn status": Fragment(
        "[TRT] [E] ../conv.cpp (48) - Cudnn Error in executeConv: 8 (CUDNN_STATUS_EXECUTION_FAILED)",
        "library-status", (),
        ("cuDNN reports an error",),
    ),
    "llm limit": Fragment(
        "[TRT-LLM] [E] max_batch_size [2048] is greater than build_config.max_batch_size [64]", "llm-limit", (),
        ("on a limit: max_batch_size",),
    ),
    "no model": Fragment(
        "[libprotobuf ERROR google/protobuf/text_format.cc:298] Error parsing text-format onnx2trt_onnx.ModelProto: "
        "1:1",
        "model-file",
    ),
    "a plan for a model": Fragment(
        "[ONNXRuntimeError] : 7 : INVALID_PROTOBUF : Load model from w/cars.plan failed:Protobuf parsing failed.",
        "model-file", (), ('does not read "w/cars.plan"',),
    ),
    "IR version": Fragment(
        "[ONNXRuntimeError] : 1 : FAIL : Load model from a.onnx failed: Unsupported model IR version: 13, max "
        "supported 11",
        "model-version",
    ),
    "myelin alone": Fragment(
        "[TRT] [E] 1: [runnerBuilderBase.cpp::build::326] Error Code 1: Myelin (Odd region)", "myelin", (),
        ("Odd region",),
    ),
    "no ranges": Fragment(
        "[W] [TRT] Calibrator is not being used. Users must provide dynamic range for all tensors.", "no-calibrator"
    ),
    "no formats": Fragment(
        "[E] Error[2]: [optimizer.cpp::getFormatRequirements::3815] Error Code 2: Internal Error (Assertion "
        "!n->candidateRequirements.empty() failed. no supported formats)",
        "no-format",
    ),
    "order of objects": Fragment(
        "[E] [TRT] 3: [runtime.cpp::~Runtime::346] Error Code 3: API Usage Error (Parameter check failed, condition: "
        "n == 1. Destroying a runtime before destroying deserialized engines created by the runtime leads to "
        "undefined behavior.",
        "object-order", (), ("A runtime is destroyed",),
    ),
    "ort feed": Fragment(
        "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: mel for the following indices",
        "ort-input", ("mel",),
    ),
    "ort feed with its sizes": Fragment(
        "[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions for input: mel for the following indices\n"
        " index: 1 Got: 33 Expected: 44\n",
        "ort-input", ("mel",), ("index: 1 Got: 33 Expected: 44",),
    ),
    "ort kernel": Fragment(
        "[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : Could not find an implementation for Trilu(14) node with name "
        "'/t/Trilu'",
        "ort-no-kernel", ("/t/Trilu",), ("Trilu(14)",),
    ),
    "uint8": Fragment(
        'Unsupported ONNX data type: UINT8 (2)\nWhile parsing node number 8 [Cast -> "29"]:\n', "parser-type", ("29",),
        ("UINT8 (2)",),
    ),
    "lean runtime": Fragment(
        "[E] Error[4]: Error Code 4: API Usage Error (Cannot deserialize engine with lean runtime", "plan-lean"
    ),
    "plugin ran badly": Fragment(
        "[TensorRT] ERROR: 2: [pluginV2DynamicExtRunner.cpp::execute::115] Error Code 2: Internal Error (Assertion "
        "status == kSTATUS_SUCCESS failed.)",
        "plugin-run",
    ),
    "plugin twice": Fragment(
        "[E] Error[4]: IRuntime::deserializeCudaEngine: Error Code 4: API Usage Error (Cannot register the library as "
        "plugin creator of MyNms_TRT exists already.)",
        "plugin-twice", ("MyNms_TRT",),
    ),
    "constraint": Fragment(
        "[2022-11-08 09:12:27 WARNING] No implementation of layer (Unnamed Layer* 125) [Shuffle] obeys the requested "
        "constraints in strict mode.",
        "precision-constraint", ("(Unnamed Layer* 125) [Shuffle]",),
    ),
    "profile and model": Fragment(
        "[E] Error[4]: IBuilder::buildSerializedNetworkToStream: Error Code 4: API Usage Error (Dimension mismatch "
        "for tensor vit and profile 0. At dimension axis 1, profile has min=256, opt=512, max=512 but tensor has "
        "256.)\n"
        '[I] Engine built in 0.0193608 sec.\n[E] Assertion failure: false && "Attempting to access an empty '
        'engine!"\n',
        "profile-mismatch", ("vit",), ("opt=512", 'Line 3 states: "Assertion failure'), ("engine-time",),
    ),
    "profile through the network": Fragment(
        "[TRT] [E] 4: Error Code 4: Internal Error (kOPT values for profile 0 violate shape constraints: something "
        "else)",
        "profile-values",
    ),
    "provider": Fragment(
        "UserWarning: Specified provider 'TensorrtExecutionProvider' is not in available provider names.",
        "provider-missing", ("TensorrtExecutionProvider",),
    ),
    "no shape set": Fragment(
        "[TRT] [E] IExecutionContext::enqueueV3: Error Code 3: API Usage Error (Parameter check failed, condition: a "
        "&& b. Not all shapes are specified. Following input tensors' dimensions are not specified: ids.)",
        "shape-missing", ("ids",),
    ),
    "launch timed out": Fragment(
        "[W] [TRT] GPU error during getBestTactic: Grid_7 : the launch timed out and was terminated", "tactic-timeout",
        ("Grid_7",),
    ),
    "no such tensor": Fragment("[TRT] [E] 3: setTensorAddress given invalid tensor name: 700", "tensor-name", ("700",)),
    "tf without tensorrt": Fragment(
        "2024-04-01 20:36:48.1: W tensorflow/compiler/tf2tensorrt/utils/py_utils.cc:38] TF-TRT Warning: Could not "
        "find TensorRT",
        "tftrt-library",
    ),
    "tf segment": Fragment(
        "2019-11-01 19:11:24.4: W tensorflow/compiler/tf2tensorrt/kernels/trt_engine_op.cc:647] Engine creation for "
        "TRTEngineOp_22 failed. The native segment will be used instead. Reason: Internal: Failed to build TensorRT "
        "engine",
        "tftrt-native", ("TRTEngineOp_22",), ("TensorFlow runs that segment",),
    ),
    "tf operators": Fragment(
        "I tensorflow/compiler/tf2tensorrt/segment/segment.cc:460] There are 7 ops of 2 different types in the graph "
        "that are not converted to TensorRT: Pack, Shape, (For more",
        "tftrt-unconverted", (), ("7 operators", "Pack, Shape"),
    ),
    "torch 64 bits": Fragment(
        "RuntimeError: [Error thrown at core/a.cpp:1] truncate_long_and_double is not set", "torch-double"
    ),
    "torch nothing": Fragment(
        "WARNING:torch_tensorrt.dynamo._compiler:0 supported operations detected in subgraph containing 9 nodes",
        "torch-none",
    ),
    "transfers": Fragment(
        "[W] * Throughput may be bound by host-to-device transfers for the inputs rather than GPU Compute",
        "transfer-bound"
    ),
    "triton config": Fragment(
        "UNAVAILABLE: Invalid argument: model 'a', tensor 'x': the model expects 4 dimensions (shape [1,3,8,8]) but "
        "the model configuration specifies 3 dimensions",
        "triton-config", ("x",),
    ),
    "triton shape": Fragment(
        "InferenceServerException: unexpected shape for input 'im' for model 'a'. Expected [-1,3,8,8], got [1,3,4,8].",
        "triton-shape", ("im",), ("got [1,3,4,8]",),
    ),
    "mixed types": Fragment(
        "[E] IBuilder::buildSerializedNetwork: Error Code 9: API Usage Error (INT8 and FP8 mixed precision is allowed "
        "only when building network with kSTRONGLY_TYPED mode)",
        "type-mix",
    ),
    "unused input": Fragment("[TRT] [W] Unused Input: position_ids", "unused-input", ("position_ids",)),
    "python handle": Fragment(
        "AttributeError: 'NoneType' object has no attribute 'create_execution_context'", "build-failed"
    ),
    "only a success": Fragment("TensorRT: export success 61.4s, saved as 'a.engine' (9.1 MB)", "outcome"),
    "dla layers": Fragment(
        "[I] [TRT] ---------- Layers Running on DLA ----------\n[I] [TRT] [DlaLayer] {ForeignNode[/a/Conv.../b/Add]}\n"
        "[I] [TRT] ---------- Layers Running on GPU ----------\n[I] [TRT] [GpuLayer] RESIZE: /c/Resize\n",
        "dla-layers", ("{ForeignNode[/a/Conv.../b/Add]}",), ("1 layer on DLA, and 1 layer on the GPU", "/c/Resize"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("key", FRAGMENTS)
def test_a_fragment_gives_the_finding_that_is_true(key: str) -> None:
    fragment = FRAGMENTS[key]
    first, *rest = find_reports(fragment.text)
    assert (fragment.rule, fragment.names) == (first.id, first.names)
    assert fragment.rest == tuple(m.id for m in rest)
    for word in fragment.words:
        assert word.lower() in f"{first.title} {first.cost} {first.evidence}".lower(), word


def test_each_row_has_a_fragment() -> None:
    covered = {m.id for f in FRAGMENTS.values() for m in find_reports(f.text)}
    assert covered >= {m.id for m in messages.MESSAGES}


@pytest.mark.slow
def test_what_stands_around_a_fragment_changes_nothing(tmp_path: Path) -> None:
    for key, fragment in FRAGMENTS.items():
        for look, change in pasted.LOOKS.items():
            path = tmp_path / "pasted.txt"
            path.write_text(change(fragment.text), encoding="utf-8", newline="")
            first = pasted.read(path).messages[0]
            assert (fragment.rule, fragment.names) == (first.id, first.names), (key, look)


@pytest.mark.parametrize(
    "prefix", ["[TRT] [E] ", "[E] [TRT] ", "[01/20/2026-11:02:42] [E] ", "ERROR: ", "app | 12:00 E "]
)
def test_a_failure_is_read_behind_any_logger_and_told_once(prefix: str) -> None:
    line = f"{prefix}10: Could not find any implementation for node {REGION}."
    report = find_reports("\n".join([line] * 3))
    assert [("no-implementation", (REGION,), 1)] == [(m.id, m.names, m.line) for m in report]


def test_a_finding_quotes_the_line_that_it_names_and_claims_no_more_of_the_end() -> None:
    """Each quotation stands in its line; how it ended is said in the words of a line, or not at all."""
    for key, fragment in FRAGMENTS.items():
        lines = ["", *(line.replace('"', "'") for line in fragment.text.split("\n"))]
        for match in find_reports(fragment.text):
            told = f"{match.cost} {match.evidence}"
            for number, quote in re.findall(r'[Ll]ine (\d+)(?: states)?: "([^"]*)"', told):
                # A message may go on in the next line.
                shown = re.sub(r"\s+", " ", " ".join(lines[int(number) :]))
                assert shown.find(re.sub(r"\s+", " ", quote.strip("."))) in range(
                    len(lines[int(number)]) + 1
                ), (key, quote)
            for claim in ("No engine", "the build fails", "succeed", "is built", "log ends"):
                assert claim not in f"{match.title} {match.cost}", (key, claim)


@pytest.mark.parametrize(
    ("line", "rule", "program"),
    [
        ("[06/22/2026-21:01:54] [E] [TRT] Frobnication of /enc/Zap_3 is odd.", "error", "TensorRT"),
        ("[TRT] [W] Frobnication of /enc/Zap_3 is odd.", "warning", "TensorRT"),
        ("[TensorRT] INTERNAL_ERROR: Frobnication of /enc/Zap_3 is odd.", "error", "TensorRT"),
        ("ERROR: [TRT]: 9: [a.cpp::b::7] Error Code 9: Frobnication of /enc/Zap_3 is odd.", "error", "TensorRT"),
        ("E0824 13:38:17.569257   934 helper.h:84] TensorRT: Frobnication of /enc/Zap_3 is odd.", "error", "TensorRT"),
        ("2025-01-02 03:04:05.6 [W:onnxruntime:Default, a.cc:9 f] Frobnication of /enc/Zap_3 is odd.", "warning",
         "ONNX Runtime"),
        ("2026-03-04 11:12:13,456 - trt.builder - ERROR - Frobnication of /enc/Zap_3 is odd.", "error",
         "The text states"),
        ("WARNING:torch_tensorrt.dynamo.utils:Frobnication of /enc/Zap_3 is odd.", "warning", "Torch-TensorRT"),
        ("2024-04-01 20:36:48.1: W tensorflow/compiler/tf2tensorrt/a.cc:916] Frobnication of /enc/Zap_3 is odd.",
         "warning", "TF-TRT"),
        ("[TensorRT-LLM][ERROR] Frobnication of /enc/Zap_3 is odd.", "error", "TensorRT-LLM"),
        ("0:00:02.1 7 0x5 WARN nvinfer gstnvinfer.cpp:9:log:<gie> NvDsInferContext: Frobnication of /enc/Zap_3 is odd.",
         "warning", "DeepStream"),
        ("tensorrt.TRTError: Frobnication of /enc/Zap_3 is odd.", "error", "The text states"),
    ],
)  # fmt: skip
def test_a_line_of_no_row_is_quoted_with_its_severity_and_its_nodes(
    line: str, rule: str, program: str
) -> None:
    (match,) = find_reports(f"onnxruntime, tensorrt\n{line}\n")
    assert (rule, ("/enc/Zap_3",), 2) == (match.id, match.names, match.line)
    assert match.title.startswith(program)
    assert "Frobnication of /enc/Zap_3 is odd." in match.title
    assert "an error" in match.title or "a warning" in match.title
    assert match.cost in {"rtlab does not say what it stops.", "rtlab reads no cost in it."}


def test_a_failure_that_ends_well_says_so() -> None:
    text = (
        "[E] [TRT] 6: The engine plan file is generated on an incompatible device, expecting compute 8.7 got compute "
        "8.6\n[I] Load new model:config.txt sucessfully\n"
    )
    failure, outcome = find_reports(text)
    assert ("plan-device", "outcome") == (failure.id, outcome.id)
    assert 'Line 2 states: "Load new model:config.txt sucessfully".' in failure.cost


EXPORTED = (
    "TensorRT: starting export with TensorRT 8.2.1.8...\n[TRT] [I] a\n[TRT] [W] Skipping tactic 0 due to insufficient "
    "memory on requested size of 9 detected for tactic 0x0\n[TRT] [I] b\nTensorRT: export success 9.1s\n"
)
TIMED = (
    "[I] Engine built in 9.5 sec.\n[W] * GPU compute time is unstable, with coefficient of variance = 4.9%.\n"
    "&&&& PASSED TensorRT.trtexec [TensorRT v8001] # trtexec --onnx=a.onnx"
)


@pytest.mark.parametrize(("text", "version"), [(EXPORTED, "8.2.1.8"), (TIMED, "8.0.1")])
def test_the_release_is_read_from_whoever_names_it(text: str, version: str) -> None:
    assert version == rtlab.read(text=text)["engine"].engine.version


def test_an_error_of_nobody_is_not_said_to_be_of_tensorrt() -> None:
    result = rtlab.read(text="ERROR: cannot infer shapes of model.onnx\n")["engine"]
    assert "A program" == result.engine.title
    assert 'The text states an error: "cannot infer shapes of model.onnx".' == result.findings[0].title


def test_a_text_of_information_alone_says_that_nothing_is_marked() -> None:
    (finding,) = rtlab.read(text="[TRT] [I] Loaded engine size: 87 MiB\n[TRT] [I] Quite well\n")[
        "engine"
    ].findings
    assert "no error and no warning in 2 lines" in finding.title
    assert 'Line 1: "Loaded engine size: 87 MiB"; line 2: "Quite well".' == finding.evidence


def test_a_text_with_an_error_is_never_one_of_information_alone() -> None:
    text = "[I] RUNNING | polygraphy debug precision m.onnx\n[E]     FAILED | Iteration 1\n[I] PASSED | Iteration 2\n"
    assert ["error"] == [f.rule for f in rtlab.read(text=text)["engine"].findings]


def test_a_success_before_an_error_is_not_how_it_ended() -> None:
    text = "[I] [TRT] Engine generation completed in 3 seconds.\n[E] [TRT] Fail to open engine file\n"
    (error,) = find_reports(text)
    assert "states" not in error.cost


def test_a_script_reports_nothing() -> None:
    assert () == find_reports("import tensorrt as trt\nlogger = trt.Logger(trt.Logger.ERROR)\n")


def test_a_message_far_from_a_printed_node_does_not_get_its_name() -> None:
    block = '--- Begin node ---\nname: "odd_1"\nop_type: "Odd"\n--- End node ---\n'
    text = (
        block + "[I] line\n" * 20 + "[E] [TRT] 3: getPluginCreator could not find plugin: Even version: 1\n"
    )
    assert ("Even",) == find_reports(text)[0].names


@pytest.mark.parametrize(
    "text",
    [
        "hello\nworld\n", "Traceback (most recent call last):\nKeyError: 'x'\n", "SELECT 1;", "[I] nothing of note\n",
        "[E] NetworkService: no route to host\n", "Failed to open file: notes.txt\n", "ERROR: No matching distribution",
        "NVRM: Xid (PCI:0000:41:00): 79, GPU has fallen off the bus.\n",
        "RuntimeError: CUDA error: device-side assert triggered\n",
        "ERROR: Unable to register cuDNN factory: one is registered already\n",
    ],
)  # fmt: skip
def test_text_of_no_known_form_is_refused_without_a_claim(text: str) -> None:
    assert () == find_reports(text)
    with pytest.raises(ReadError) as refused:
        rtlab.read(text=text)
    assert "tells of a build" not in str(refused.value)
    assert "before the build does" not in str(refused.value)


NSYS = """ ** CUDA GPU Kernel Summary (cuda_gpu_kern_sum):

 Time (%)  Total Time (ns)  Instances  Avg (ns)  Med (ns)  Min (ns)  Max (ns)  StdDev (ns)  Name
 --------  ---------------  ---------  --------  --------  --------  --------  -----------  ----------------
     60.0        6,000,000        300   20000.0   19900.0     19000     30000       100.0  sm80_xmma_fprop<int, (bool)1>
     30.0        3,000,000        100   30000.0   29900.0     29000     40000        200.0  my gemm
     10.0        1,000,000        100   10000.0    9900.0      9000     20000         50.0  copyPackedKernel

 ** CUDA API Summary (cuda_api_sum):
"""
NSYS_CSV = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '60.0,6000000,300,20000.0,19900.0,19000,30000,100.0,"sm80_xmma_fprop<int, (bool)1>"\n'
    "30.0,3000000,100,30000.0,29900.0,29000,40000,200.0,my gemm\n"
    "10.0,1000000,100,10000.0,9900.0,9000,20000,50.0,copyPackedKernel\n"
)


@pytest.mark.parametrize(
    "text", [NSYS, NSYS_CSV, NSYS_CSV.replace("(ns)", "(us)").replace("000000,", "000,")]
)
def test_kernels_of_nsight_systems_are_read_from_text_and_csv(text: str) -> None:
    study = rtlab.read(text=text)
    kernels, copies = study["engine"].findings
    # 6, 3 and 1 ms in 300, 100 and 100 launches.
    assert ("gpu-kernels", "gpu-copies") == (kernels.rule, copies.rule)
    assert 'Kernel "sm80_xmma_fprop<int, (bool)1>" takes 60 %' in kernels.title
    assert "3 kernels in the table together take 10 ms" in kernels.cost
    assert '"my gemm" 3 ms in 100 launches of 30 µs' in kernels.evidence
    assert "1 kernel" in copies.title
    assert "10 %" in copies.title
    assert study["engine"].engine.title.startswith("Nsight Systems")


def _make_chain() -> onnx.ModelProto:
    """Four operators one after the other, /a to /d, and /e beside them."""
    ops = [("Relu", "x", "a"), ("Exp", "a", "b"), ("Neg", "b", "c"), ("Abs", "c", "d"), ("Tanh", "x", "e")]
    nodes = [helper.make_node(op, [i], [f"{o}_out" if o in "abc" else o], name=f"/{o}") for op, i, o in ops]
    for node in nodes[1:4]:
        node.input[0] += "_out"
    sides = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in ("x", "d", "e")]
    graph = helper.make_graph(nodes, "chain", sides[:1], sides[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("name", "nodes"),
    [
        ("{ForeignNode[/b.../d]}", ("/b", "/c", "/d")),
        ("{ForeignNode[a_out[Constant].../c]}", ("/a", "/b", "/c")),
        ("{ForeignNode[/b.../c", ("/b", "/c")),
        ("/a + /b", ("/a", "/b")),
        ("/unknown", ()),
    ],
)  # fmt: skip
def test_a_finding_has_the_nodes_of_the_model(name: str, nodes: tuple[str, ...], tmp_path: Path) -> None:
    onnx.save(_make_chain(), tmp_path / "chain.onnx")
    line = f"[E] 10: Could not find any implementation for node {name}."
    finding = rtlab.read(text=line, model=tmp_path / "chain.onnx")["engine"].findings[0]
    assert nodes == finding.nodes
    assert name in finding.title


def test_a_name_that_is_cut_off_is_told_with_the_whole_one_alone() -> None:
    lines = [
        f"[E] Could not find any implementation for node {n}" for n in (REGION[:25], f"{REGION}.", "other.")
    ]
    assert (REGION, "other") == find_reports("\n".join(lines))[0].names


def test_a_refusal_to_onnx_runtime_stops_nothing() -> None:
    text = FRAGMENTS["trt10 refusal"].text
    alone, asked = (
        find_reports(f"{prefix}{text}")[0] for prefix in ("[E] ", "[W:onnxruntime:Default, a.h:92 log] ")
    )
    assert [True, False] == [alone.failed, asked.failed]
    assert "next provider" in asked.cost


def test_messages_around_a_table_of_times_are_read_too() -> None:
    text = "[W] [TRT] Missing scale and zero-point for tensor t9, expect fall back\n" + (
        pasted.CORPUS / "pasted" / "profile-table.log"
    ).read_text(encoding="utf-8")
    result = rtlab.read(text=text)["engine"]
    assert 4 == len(result.engine.layers)
    assert "int8-scale" in [f.rule for f in result.findings]


LAYER_FILE = json.dumps({
    "Layers": [
        {"Name": n, "LayerType": "gemm", "Inputs": [], "Outputs": [], "TacticName": t}
        for n, t in (("fc1", "my gemm"), ("fc2", "my gemm"), ("conv", "sm80_conv"), ("cast", "__myl_Cast"))
    ]
}, indent=1)  # fmt: skip
SCALE = "[W] [TRT] Missing scale and zero-point for tensor t9, expect fall back\n"


@pytest.mark.parametrize(
    "text",
    [SCALE + LAYER_FILE, f"{LAYER_FILE}\n{SCALE}", SCALE + LAYER_FILE[:-8], LAYER_FILE[20:] + "\n" + SCALE],
)
def test_messages_around_a_listing_of_layers_are_read_too(text: str) -> None:
    result = rtlab.read(text=text)["engine"]
    assert {"fc2", "conv"} <= {y.name for y in result.engine.layers}
    finding = next(f for f in result.findings if f.rule == "int8-scale")
    assert f"Line {1 + text[: text.index(SCALE)].count(chr(10))}:" in finding.evidence


VERBOSE = "[V] [TRT] Original: 9 layers\n[V] [TRT] After dead-layer removal: 8 layers\n"


@pytest.mark.parametrize(
    "text",
    [
        VERBOSE + LAYER_FILE,
        f"{LAYER_FILE}\n{VERBOSE}",
        f"{VERBOSE}{LAYER_FILE}\n{SCALE}",
        VERBOSE + LAYER_FILE[:-8],
    ],
)
def test_a_verbose_log_and_a_listing_of_layers_in_one_paste_are_both_read(text: str) -> None:
    result = rtlab.read(text=text)["engine"]
    assert {"fc2", "conv"} <= {y.name for y in result.engine.layers}
    assert result.log is not None
    assert (9, 8) == result.log.attempts[0].counts
    assert (SCALE in text) == ("int8-scale" in [f.rule for f in result.findings])


KERNELS = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    "60.0,6000000,200,30000.0,29900.0,29000,40000,200.0,my gemm\n"
    "30.0,3000000,100,30000.0,29900.0,29000,40000,200.0,sm80_conv_execute_kernel_trt\n"
    "10.0,1000000,300,3333.0,3300.0,3000,4000,50.0,copyPackedKernel\n"
)


def test_kernels_of_nsight_systems_are_the_times_of_their_layers(tmp_path: Path) -> None:
    (tmp_path / "layers.json").write_text(LAYER_FILE, encoding="utf-8")
    (tmp_path / "kernels.csv").write_text(KERNELS, encoding="utf-8")
    beside = rtlab.read(tmp_path / "layers.json", tmp_path / "kernels.csv")["engine"]
    pasted_together = rtlab.read(text=f"{LAYER_FILE}\n\n{KERNELS}")["engine"]
    # 200 launches of a kernel of two layers and 100 of a kernel of one are 100 inferences: 6 and 3 ms by 100.
    for result in (beside, pasted_together):
        times = {t.layer.split(":")[1]: t.median for t in result.timing.layers}
        assert {"fc1": pytest.approx(0.06), "conv": pytest.approx(0.03)} == times
        notes = " ".join(result.engine.notes)
        assert (
            '1 kernel (1 ms of the capture), left out, is the tactic of no layer: "copyPackedKernel"' in notes
        )
        assert '1 kernel runs several layers; the first of each shows the time of all: "my gemm"' in notes
        assert '1 layer has no kernel in the table: "cast"' in notes
        assert (
            "divided by 100 inferences, the launches per layer of 2 of 2 joined kernels"
            in result.timing.origin
        )


def test_kernels_of_another_engine_give_no_times() -> None:
    others = KERNELS.replace("my gemm", "other").replace("sm80", "sm90")
    result = rtlab.read(text=f"{LAYER_FILE}\n\n{others}")["engine"]
    assert result.timing is None
    assert "none of the 3 kernels in the table" in " ".join(result.engine.notes)


def test_a_log_without_severities_is_searched_without_its_lines_per_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    searched: list[str] = []
    monkeypatch.setattr(
        verbose, "find_reports", lambda text, numbers: searched.append(text) or find_reports(text, numbers)
    )
    lines = [
        line.format(i=i)
        for i in range(500)
        for line in (
            "Parsing node: /n{i} [Relu]", "Searching for input: t{i}", "/n{i} [Relu] inputs: [t{i} -> (1, 8)[FLOAT]], ",
            "Registering layer: /n{i} for ONNX node: /n{i}", "Registering tensor: u{i} for ONNX tensor: u{i}",
        )
    ]  # fmt: skip
    # What begins as a line about a node does may still be a message.
    lines += ["Original: 500 layers", f"/n7 [Relu] could not find any implementation for node {REGION}."]
    found = verbose.parse("\n".join(lines)).messages
    assert [("no-implementation", (REGION,), len(lines))] == [(m.id, m.names, m.line) for m in found]
    assert [2] == [len(text.splitlines()) for text in searched]


def test_a_tensor_that_differs_is_its_node(tmp_path: Path) -> None:
    onnx.save(_make_chain(), tmp_path / "chain.onnx")
    line = "[E] FAILED | Output: 'b_out' | Difference exceeds tolerance (rel=0.1, abs=0.1)"
    assert ("/b",) == rtlab.read(text=line, model=tmp_path / "chain.onnx")["engine"].findings[0].nodes


def test_a_failed_build_is_not_called_a_log_that_ends(tmp_path: Path) -> None:
    path = tmp_path / "build.log"
    path.write_text(
        "[V] [TRT] Original: 9 layers\n[V] [TRT] After dead-layer removal: 8 layers\n" + "[V] [TRT] x\n" * 50
        + "[E] 10: Could not find any implementation for node conv_1.\n",
        encoding="utf-8",
    )  # fmt: skip
    result = rtlab.read(path)["engine"]
    assert (["no-implementation"], ()) == ([f.rule for f in result.findings], result.engine.notes)
    # The line of the file, verbose ones counted.
    assert "Line 53" in result.findings[0].evidence


def _event(name: str, op: str, provider: str, microseconds: float) -> dict[str, object]:
    args = {"op_name": op, "provider": provider, "node_index": "1"}
    return {
        "cat": "Node",
        "name": f"{name}_kernel_time",
        "dur": microseconds,
        "ph": "X",
        "ts": 1,
        "args": args,
    }


def test_a_profile_of_several_providers_says_which_runs_each_node(tmp_path: Path) -> None:
    events = [
        _event("TRT_0", "TRT_0", "TensorrtExecutionProvider", 1000),
        _event("/TopK", "TopK", "CPUExecutionProvider", 250),
        _event("Memcpy_1", "MemcpyFromHost", "CUDAExecutionProvider", 40),
        _event("TRT_1", "TRT_1", "TensorrtExecutionProvider", 500),
    ]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    result = rtlab.read(path)["engine"]
    partition, copies = result.findings
    assert "gets 2 subgraphs" in partition.title
    assert "1 node on CPUExecutionProvider" in partition.title
    assert 'CPUExecutionProvider: TopK "/TopK" 250 µs' in partition.evidence
    assert "Nodes outside TensorRT take 250 µs" in partition.cost
    assert "1 copy" in copies.title
    assert "40 µs" in copies.cost
    assert "CPU and GPU" == result.timing.processor


def test_the_explorer_shows_what_was_pasted() -> None:
    explorer = rtlab.Study(tiny_model()).explore()
    text = FRAGMENTS["trt11 in computeCosts"].text
    explorer._receive(explorer, ReadDropped(["pasted.txt"]).to_dict(), [text.encode()])
    explorer.wait()
    assert explorer.failure is None
    assert ["no-implementation"] == [f.rule for f in explorer.study[explorer.state.variant].findings]


def test_the_command_line_prints_the_finding_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from rtlab.cli import main

    path = tmp_path / "one.txt"
    path.write_text(FRAGMENTS["plan 7"].text, encoding="utf-8")
    assert 0 == main(["read", str(path)])
    output = capsys.readouterr().out
    assert "1 finding\n1. The plan is of another release" in output
    assert "layers by kind" not in output


def test_a_refused_timing_cache_is_no_damaged_plan() -> None:
    text = (
        "[E] 1: Error Code 1: Serialization (Serialization assertion magicTagRead == kMAGIC_TAG failed."
        "Magic tag does not match)\n[E] 4: The timing cache will not be used!\n[I] Engine built in 3.1 sec."
    )
    found = find_reports(text)
    assert {"timing-cache", "engine-time"} == {m.id for m in found}
    assert not any(m.failed for m in found)
    assert "plan-damaged" in {m.id for m in find_reports(text.splitlines()[0])}


def test_unconverted_operators_are_not_said_to_run_where_the_text_does_not_say_so() -> None:
    text = (
        "ERROR: [Torch-TensorRT] - Method requested cannot be compiled by Torch-TensorRT.TorchScript.\n"
        "Unsupported operators listed below:\n  - aten::renorm(Tensor self) -> (Tensor)\n"
    )
    (found,) = [m for m in find_reports(text) if m.id == "torch-unsupported"]
    assert "aten::renorm" in found.title
    assert found.evidence.startswith("With fallback PyTorch runs them")
    assert "where full compilation is required, it stops" in found.evidence


def test_a_line_that_ends_in_a_colon_does_not_take_in_a_message_of_its_own() -> None:
    text = "WARNING: no library of tensorrt plugins. Path:\n[03/04/2025-11:12:13] [TRT] [E] 9: Odd thing.\n"
    error, warning = find_reports(text)
    assert ("error", "warning") == (error.id, warning.id)
    assert "Odd thing" in error.title
    assert warning.evidence == 'Line 1: "no library of tensorrt plugins. Path:".'


def test_a_fallback_to_the_gpu_is_quoted_from_a_line_that_names_it() -> None:
    """Of two layers that leave DLA one has a reason; the other's line is the evidence for the other."""
    line = "[W] [TRT] Layer '{}' ({}): Unsupported on DLA. Switching this layer's device type to GPU.\n"
    text = "[W] [TRT] /a/Slice: DLA only supports slicing 4 dimensional tensors.\n"
    *_, fallback = find_reports(text + line.format("/a/Slice", "SLICE") + line.format("/b/Const", "CONSTANT"))
    assert ("dla-fallback", ("/b/Const",), 3) == (fallback.id, fallback.names, fallback.line)
    assert "/b/Const" in fallback.evidence
    assert "/a/Slice" not in fallback.evidence


def test_no_other_release_is_offered_to_a_network_that_is_strongly_typed() -> None:
    (flag,) = find_reports(FRAGMENTS["rtx FP16 flag"].text)
    (member,) = find_reports(FRAGMENTS["trt11 FP16 flag"].text)
    assert "tensorrt<11" not in flag.remedy
    assert "tensorrt<11" in member.remedy


def test_the_end_of_polygraphy_is_a_success() -> None:
    text = "[W] polygraphy: an odd thing happens here\n[I] PASSED | Runtime: 4.1s | Command: polygraphy run\n"
    assert ["warning", "outcome"] == [m.id for m in find_reports(text)]


def test_a_condition_of_a_program_is_quoted_as_it_is() -> None:
    text = "Error Code 3: API Usage Error (Parameter check failed, condition: as_int<long>(p) % 512 == 0)\n"
    assert "As_int" not in find_reports(text)[0].evidence


#: What only quotes: each repeats words of the text with their severity, and claims nothing else.
QUOTATIONS = {"error", "warning", "problem", "build-failed", "outcome"}
#: A message as nobody's program prints it now: denied, supposed, wished away, of a person, searched for, computed with.
NO_STATEMENTS = (
    "It is no longer so that TensorRT prints: {}", "Without this TensorRT would print {}", "If TensorRT prints {}",
    "TensorRT may print {}", "[TRT] [W] If nothing helps: {}", "[TRT] [W] This should prevent {}",
    "Somebody said of TensorRT that {}", "I get with TensorRT {}", "We had {} with TensorRT",
    'if "{}" in tensorrt_log:', '$ grep "{}" tensorrt.log', "# TensorRT prints {}", "{} (TensorRT: can be ignored)",
    "TensorRT: {}, which was fixed",
)  # fmt: skip


def _list_messages(text: str) -> list[str]:
    """The lines of a text that a row fits, without a logger's marks."""
    lines = messages._join_messages(text.split("\n"))
    marked = [
        (line, messages.severity.parse_mark(line)) for line in lines if any(p.search(line) for _, p in ROWS)
    ]
    return [mark.text if mark is not None else line.strip() for line, mark in marked]


ROWS = messages._COMPILED
#: Each fragment; a few of them without delay.
KEYS = [k if i % 20 == 0 else pytest.param(k, marks=pytest.mark.slow) for i, k in enumerate(FRAGMENTS)]


@pytest.mark.parametrize("key", KEYS)
def test_a_message_that_is_denied_supposed_or_a_persons_is_only_quoted(key: str) -> None:
    for message in _list_messages(FRAGMENTS[key].text):
        for frame in NO_STATEMENTS:
            matches = messages.find_messages(frame.format(message))
            assert {m.id for m in matches} <= QUOTATIONS, frame.format(message)


@pytest.mark.parametrize("key", KEYS)
def test_a_fragment_that_is_cut_claims_no_more_than_its_rest_says(key: str) -> None:
    """What is quoted stands in the rest, and a name that the rest ends with is said to be one that may be cut off."""
    text = FRAGMENTS[key].text
    step = max(1, len(text) // 40)
    for end in range(8, len(text), step):
        rest = text[:end]
        shown = re.sub(r"\s+", " ", rest.replace('"', "'"))
        for match in find_reports(rest):
            for quote in re.findall(r'"([^"]*)"', match.title):
                assert re.sub(r"\s+", " ", quote).removesuffix("...") in shown, (rest, match.title)
            if match.names and rest.endswith(match.names[-1]) and match.id in {m.id for m, _ in ROWS}:
                assert "may be cut off" in match.evidence, (rest, match)


@pytest.mark.parametrize("key", KEYS)
def test_a_line_behind_a_fragment_is_no_part_of_its_findings(key: str) -> None:
    text = FRAGMENTS[key].text.rstrip("\n")
    alone = {m.id: m for m in find_reports(text + "\n")}
    for line in (
        "[01/02/2026-03:04:05] [E] [TRT] Odd thing 7.", "(an odd thing 7)", "    Odd thing 7", "Odd thing 7: yes",
        "0:00:02.1 7 0x5 WARN nvinfer gstnvinfer.cpp:9:log:<gie> Odd thing 7",
    ):  # fmt: skip
        for match in find_reports(f"{text}\n{line}"):
            told = f"{match.title} {match.cost} {match.evidence}".lower()
            assert match.id in {"error", "warning"} or "odd thing" not in told, (line, match)
            if match.id in alone and match.id not in QUOTATIONS:
                assert match.title == alone[match.id].title, line


@pytest.mark.parametrize("key", KEYS)
def test_a_fragment_whose_lines_are_wrapped_names_nothing_that_it_does_not_have(key: str) -> None:
    text = FRAGMENTS[key].text
    wrapped = "\n".join(
        "\n".join(textwrap.wrap(line, 80, break_on_hyphens=False)) for line in text.split("\n")
    )
    whole = {n for m in find_reports(text) for n in m.names}
    for match in find_reports(wrapped):
        if match.id not in QUOTATIONS:
            assert all(any(n in w for w in whole) or n in wrapped for n in match.names), match


@pytest.mark.parametrize("key", KEYS)
def test_what_is_no_error_by_its_mark_is_no_failure(key: str) -> None:
    for message in _list_messages(FRAGMENTS[key].text):
        for mark in ("[I] [TRT] ", "[W] [TRT] ", "[V] [TRT] "):
            matches = messages.find_messages(mark + message)
            assert not any(m.failed for m in matches if m.id != "build-failed"), mark


@pytest.mark.parametrize(
    "line",
    [
        "set verbosity to ERROR for tensorrt", "No ERROR in the log of tensorrt", "[I] tensorrt: 0 ERROR lines",
        "look for lines with [E] in the log of tensorrt", "tensorrt.Logger.ERROR", "Error Code: 0, tensorrt is fine",
    ],
)  # fmt: skip
def test_a_word_of_severity_within_a_sentence_is_no_mark(line: str) -> None:
    assert not {m.id for m in find_reports(line)} & {"error", "warning", "build-failed"}


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("ERROR: TensorRT and ONNX Runtime disagree", "The text states an error"),
        ("[mmengine] ERROR: TensorRT is not there", "The text states an error"),
        ("RuntimeError: tensorrt, onnxruntime and polygraphy are odd", "The text states an error"),
        ("[TRT] [E] onnxruntime is odd", "TensorRT reports an error"),
        ("2025-01-02 03:04:05.6 [E:onnxruntime:Default, a.cc:9 f] TensorRT is odd", "ONNX Runtime reports an error"),
        ("[TRT-LLM] [E] TensorRT is odd", "TensorRT-LLM reports an error"),
    ],
)  # fmt: skip
def test_a_program_reports_only_what_its_own_mark_stands_before(line: str, title: str) -> None:
    (match,) = find_reports(line)
    assert match.title.startswith(title)


@pytest.mark.parametrize(
    "text",
    [
        # Each is in the form of a message, and is none.
        "[I] [TRT] Timing cache: no mismatch",
        "CompilationSettings(enabled_precisions={torch.float}, truncate_double=False) of torch_tensorrt",
        "Importer error status: Importation succeeded with non-fatal errors. nsys",
        "PyTorch: 12 of 12 parts have FP16 values, none outside of FP16 range; onnx",
        "[E] onnx2ncnn: Unsupported operator: GridSample",
        "E tritonserver: request exceeds max_batch_size 8 for model",
        "[libprotobuf ERROR text_format.cc:298] Error parsing text-format inference.ModelConfig: 1:1 tritonserver",
        "[W] [TRT] cudaStreamCaptureModeGlobal is used",
        "the engine was built with engine_host_code_allowed, says the page of TensorRT",
        "[W] trt: sequenceLength 512 is not supported by the plugin",
        "onnxruntime: Specified provider 'OpenVINOExecutionProvider' is not in available provider names.",
        "trt: conversion never succeeded", "TensorRT: the engine build finished with 3 errors",
        " Time (%)  Total Time (ns)  Instances  Avg (ns)  Style  Range\n 60.0  6,000  30  200.0  PushPop  infer\n",
    ],
)  # fmt: skip
def test_a_text_in_the_form_of_a_message_that_says_another_thing_gets_no_finding_of_it(text: str) -> None:
    assert {m.id for m in find_reports(text)} <= {"error", "warning", "problem"}


def test_a_subgraph_that_is_counted_alone_says_nothing_of_the_other_nodes() -> None:
    (partition,) = find_reports(
        "[TensorRT EP] number of subgraphs running on TensorRT execution provider is 2"
    )
    assert "TensorRT's provider gets 2 subgraphs of the model." == partition.title


def test_a_bound_that_may_be_is_said_to_be_possible() -> None:
    for key in ("enqueue", "transfers"):
        assert " may " in find_reports(FRAGMENTS[key].text)[0].title


def test_a_mean_is_not_called_a_median_and_the_last_run_counts() -> None:
    line = "[I] GPU Compute Time: min = 1.0 ms, max = {} ms, mean = {} ms"
    (last,) = find_reports(f"{line.format(4, 2)}\n{line.format(8, 5)}")
    assert ("An inference takes 5 ms (GPU Compute Time, mean).", "GPU Compute Time mean 5 ms.") == (
        last.title, last.evidence,
    )  # fmt: skip


def test_a_remedy_under_a_condition_states_it() -> None:
    """No remedy says that nothing is to be done, and no cause that a line has what it may have lost."""
    for row in messages.MESSAGES:
        assert not re.match(r"Nothing\b", row.remedy), row.id
        assert not re.search(r"(?i)the line (?:has|gives|says) ", row.cause), row.id


#: What stands before a message in the logs of programs around TensorRT.
PREFIXES = (
    "[TRT] [E] 9: ", "ERROR: [TRT]: 3: [a.cpp::b::7] Error Code 3: Internal Error (", "[2024-05-06 07:08:09 ERROR] 4: ",
    'E0612 09:41:13.640077 1 logging.cc:40] "', "svc-1  | E0612 09:41:13.640077 1 logging.cc:40] ",
    "Mar 11 08:02:22 host svc[1423]: [TRT] [E] 9: ", "2026-03-04 11:12:13,456 - a.b - ERROR - ",
    "[E:onnxruntime:Default, x.h:91 log] [2025-10-14 02:07:29   ERROR] 2: ",
    "ERROR:torch_tensorrt [TensorRT Conversion Context]:4: ",
    "2025-02-18T07:44:41.0044170Z [02/18/2025-07:44:41] [E] [TRT] 9: ",
)  # fmt: skip


@pytest.mark.parametrize("key", KEYS)
def test_what_stands_before_a_message_is_no_part_of_its_names(key: str) -> None:
    """A name may be missed; none is another one."""
    for message in _list_messages(FRAGMENTS[key].text):
        names = {
            m.id: m.names for m in find_reports(f"TensorRT\n[E] [TRT] {message}") if m.id not in QUOTATIONS
        }
        for prefix in PREFIXES:
            closing = {"(": ")", '"': '"'}.get(prefix[-1], "")
            matches = [
                m for m in find_reports(f"TensorRT\n{prefix}{message}{closing}") if m.id not in QUOTATIONS
            ]
            assert names.keys() == {m.id for m in matches}, prefix
            assert all(m.names in {names[m.id], ()} for m in matches), prefix


@pytest.mark.slow
def test_two_texts_one_behind_the_other_keep_their_names() -> None:
    keys = [*FRAGMENTS]
    for one, other in zip(keys, keys[7:] + keys[:7], strict=True):
        texts = [FRAGMENTS[k].text.rstrip("\n") + "\n" for k in (one, other)]
        alone = [{m.id: m.title for m in find_reports(text)} for text in texts]
        for match in find_reports("".join(texts)):
            titles = [a[match.id] for a in alone if match.id in a]
            # What the parser refuses, and what it only reports on, is one finding.
            if match.id not in {*QUOTATIONS, "parser-refusal"} and len(titles) == 1:
                assert titles == [match.title], (one, other)


def test_lines_that_a_terminal_wrapped_are_read_whole_and_counted_as_they_stand() -> None:
    lines = (
        "WARNING: [TRT]: an odd thing that is neither here nor there, and that goes on and on for quite some columns",
        f"[TRT] [E] IBuilder::f: Error Code 10: Internal Error (Could not find any implementation for node {REGION}.)",
        "INFO: [TRT]: nothing that matters to anybody, in words that fill a line of a terminal and a bit of one",
    )
    wrapped = "\n".join(line[i : i + 70] for line in lines for i in range(0, len(line), 70))
    failure, warning = find_reports(wrapped)
    assert ("no-implementation", (REGION,), 3) == (failure.id, failure.names, failure.line)
    assert lines[0].split(": ")[2] in warning.title


def test_rows_of_one_length_are_no_wrapped_lines() -> None:
    rows = [
        f"| {name:<40} | 1 | {status:<50} |"
        for name, status in (("a", "UNAVAILABLE: odd thing"), ("b", "READY"))
    ]
    frame = f"+{'-' * 42}+---+{'-' * 52}+"
    (load,) = find_reports("\n".join([frame, *rows, frame]))
    assert 'Triton does not load model "a".' == load.title


def test_a_text_with_the_quotes_of_a_forum_is_read_as_it_was_printed() -> None:
    text = (
        "[E] [TRT] ModelImporter.cpp:1023: \u2014 Begin node \u2014\ninput: \u201cx\u201d\nname: \u201c/b/Warp\u201d\n"
        "op_type: \u201cWarp\u201d\n[E] [TRT] ModelImporter.cpp:1024: \u2014 End node \u2014\n"
        "[E] [TRT] In node 3 (checkFallbackPluginImporter): UNSUPPORTED_NODE: creator && \u201cPlugin not found, are "
        "the\u201d"
    )
    (plugin,) = find_reports(text)
    assert "plugin" == plugin.id


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("[TensorRT-LLM][WARNING] A value of nvinfer1::getLogger() is odd.\n", "TensorRT-LLM"),
        (("2025-02-18T07:44:13.01Z &&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec\n"
         "2025-02-18T07:44:13.22Z [02/18/2025-07:44:13] [I] Selected Device: Tesla T4\n"
         "2025-02-18T07:44:14.22Z [02/18/2025-07:44:14] [E] [TRT] An odd thing\n"), "TensorRT 8.6.1 · Tesla T4"),
        ("[TRT] [E] An odd thing\n", "TensorRT"),
        ("ERROR: an odd thing with model.onnx\n", "A program"),
    ],
)  # fmt: skip
def test_the_head_of_a_text_without_layers_has_what_is_read_and_nothing_of_what_is_not(
    text: str, title: str
) -> None:
    assert title == rtlab.read(text=text)["engine"].engine.title


def test_a_failure_that_a_logger_calls_a_warning_or_that_a_success_follows_has_not_failed() -> None:
    line = "deserialize engine from file :/m/a.engine failed"
    warn, info = (
        f"0:00:02.1 7 0x5 {word} nvinfer gstnvinfer.cpp:9:log:<gie> NvDsInferContext[UID 1]: "
        for word in ("WARN", "INFO")
    )
    (warning,) = find_reports(f"{warn}{line}")
    assert ("warning", False) == (warning.id, warning.failed)
    success = f"{info}serialize cuda engine to file: /m/b.engine successfully"
    failure, outcome = find_reports(f"nvinfer: {line}\n{success}")
    assert ("build-failed", False, "outcome") == (failure.id, failure.failed, outcome.id)


def test_a_remedy_behind_which_a_success_stands_is_one_for_who_needs_more() -> None:
    error = "[E] Error[1]: Error Code 1: Cuda Runtime (out of memory)\n"
    alone, followed = (
        find_reports(error + rest)[0] for rest in ("", "&&&& PASSED TensorRT.trtexec [TensorRT v100700]")
    )
    assert alone.remedy.startswith("Free memory")
    assert followed.remedy.startswith("If what line 2 states is not enough: free memory")
