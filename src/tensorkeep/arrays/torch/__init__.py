"""torch's tensors.

- `devices`: devices of torch that there are here (imports torch).
- `_composed`: sparse, quantized, nested and wide complex tensors of torch, checked and made.
- `_torchao`: the closed registry of tensors that wrap others, and what must be true of their parts.
- `_subclasses`: tensors that wrap others, taken apart and put together.
- `_codec`: all that is data of torch, taken apart and put together.
- `_attributes`: parameters, gradients and memory formats of torch.
- `_adapter`: the adapters.
"""

__all__: list[str] = []
