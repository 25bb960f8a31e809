"""torch's tensors. Nothing here is imported before a tensor is needed.

- `devices`: the devices that torch has on this machine.
- `partitioned`: models whose parameters DeepSpeed has partitioned.
- `_dtypes`: torch's dtypes by row of the dtype table.
- `_distribution`: bytes on a device, distributed to tensors.
- `streams`: in which threads work on CUDA and XPU devices.
- `_fetches`: copies from these devices in the background.
- `_device_memory`: their memory, and copies to it.
- `_arithmetic`: operations on these devices for formulas of quantized numbers.
- `to_host`: parts of tensors copied back while others are written.
- `_dense`: `TorchArrays`, dense tensors over buffers and storages, on devices, cast, and described for writing.
- `_attributes`: Parameter or Buffer, requires_grad, memory format.
- `_composed`: sparse, quantized, nested and wide complex tensors, checked and made.
- `_torchao`: the closed registry of torchao's classes, and checks of their parts.
- `_subclasses`: tensors that wrap others.
- `_codec`: `TorchCodec`, all of torch's objects as plain data and back.
"""

__all__: list[str] = []
