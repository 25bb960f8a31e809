"""Imports both packages of Lightning before tensorkeep's integration, which adapts to those that are imported."""

import lightning.pytorch  # noqa: F401
import pytorch_lightning  # noqa: F401
