"""Files as libraries write them: Lightning, OmegaConf, transformers, accelerate, scikit-learn, skorch, Megatron."""

from __future__ import annotations

import argparse
import io
import pathlib
import pickle
from typing import Any

import lightning
import numpy as np
import omegaconf
import pytest
import scipy.sparse
import sklearn.ensemble
import sklearn.linear_model
import sklearn.pipeline
import sklearn.preprocessing
import skorch
import torch
import transformers
from accelerate import Accelerator
from torch import nn
from torch.optim import lr_scheduler

import tensorkeep
from tensorkeep.errors import UnsafeError
from tensorkeep.formats.pickles import Unknown
from tensorkeep.kinds.pickles import PickleFile, open_pickle
from tests.support.pickles.honest_files import FORMS, run, saved
from tests.support.pickles.honest_objects import Tower
from tests.support.pickles.read_as_run import assert_has_state, assert_read_as_run
from tests.support.pickles.same_value import assert_same

pytestmark = pytest.mark.filterwarnings("ignore")


class Classifier(lightning.LightningModule):
    def __init__(self, activation: Any, config: Any, folder: Any, lr: float = 0.1) -> None:
        super().__init__()
        self.save_hyperparameters()
        self.layers = nn.Sequential(nn.Linear(3, 4), activation(), nn.BatchNorm1d(4), nn.Linear(4, 1))

    def training_step(self, batch: Any, place: int) -> torch.Tensor:
        loss = self.layers(batch[0]).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=self.hparams.lr)
        return {"optimizer": optimizer, "lr_scheduler": torch.optim.lr_scheduler.StepLR(optimizer, 1)}


@pytest.fixture(scope="module")
def lightning_checkpoint(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, torch.Tensor]]:
    folder = tmp_path_factory.mktemp("lightning")
    config = omegaconf.OmegaConf.create({
        "lr": 0.1,
        "sizes": [1, 2, {"a": None}],
        "same": "${lr}",
        "deep": {"x": {"y": 1}},
    })
    model = Classifier(nn.ReLU, config, pathlib.Path("/data/here"))
    trainer = lightning.Trainer(
        max_epochs=2,
        accelerator="cpu",
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[lightning.pytorch.callbacks.ModelCheckpoint(folder, monitor="loss")],
    )
    batches = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(8, 3)), batch_size=4)
    trainer.fit(model, batches)
    trainer.save_checkpoint(folder / "model.ckpt")
    return str(folder / "model.ckpt"), model.state_dict()


def test_lightning_checkpoint(lightning_checkpoint: tuple[str, dict[str, torch.Tensor]]) -> None:
    path, state = lightning_checkpoint
    file = assert_read_as_run(path)
    tree = file.tree
    assert {"state_dict", "optimizer_states", "lr_schedulers", "callbacks", "loops", "hyper_parameters"} <= set(tree)
    assert list(tree["state_dict"]) == list(state)
    for name, tensor in state.items():
        assert torch.equal(file[f"state_dict.{name}"].load(), tensor)
    assert file["optimizer_states.0.state.0.exp_avg"].shape == (4, 3)
    hyper_parameters = tree["hyper_parameters"]
    assert hyper_parameters["folder"] == "/data/here"
    assert hyper_parameters["activation"].qualified_name == "torch.nn.modules.activation.ReLU"
    assert type(hyper_parameters["config"]) is Unknown


def test_strict_refuses_what_is_not_data(lightning_checkpoint: tuple[str, dict[str, torch.Tensor]]) -> None:
    with pytest.raises(UnsafeError, match="not known to be data"):
        open_pickle(lightning_checkpoint[0], strict=True)


def test_configuration_of_omegaconf_has_cycles() -> None:
    config = omegaconf.OmegaConf.create({"lr": 0.1, "layers": [{"n": 3}, {"n": 4}], "w": {"again": "${lr}"}})
    for form in ("zip-2", "zip-4", "zip-5", "legacy-2"):
        file = assert_read_as_run(saved({"cfg": config, "w": torch.ones(2)}, form), FORMS[form]["pickle_protocol"])
        assert list(file) == ["w"]
        found = file.tree["cfg"]
        assert found.qualified_name == "omegaconf.dictconfig.DictConfig"
        inner = found.state["_content"]["layers"]
        assert inner.state["_parent"] is found


@pytest.mark.parametrize("protocol", [2, 5])
def test_training_arguments_of_transformers(tmp_path: pathlib.Path, protocol: int) -> None:
    arguments = transformers.TrainingArguments(str(tmp_path), learning_rate=3e-4, use_cpu=True, report_to="none")
    buffer = io.BytesIO()
    torch.save(arguments, buffer, pickle_protocol=protocol)
    file = assert_read_as_run(buffer.getvalue(), protocol)
    assert file.tree.qualified_name == "transformers.training_args.TrainingArguments"
    assert file.tree.state["learning_rate"] == 3e-4
    assert len(file) == 0


def test_state_that_accelerate_saves(tmp_path: pathlib.Path) -> None:
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = lr_scheduler.StepLR(optimizer, 2)
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    accelerator.backward(model(torch.ones(1, 3)).sum())
    optimizer.step()
    accelerator.save_state(str(tmp_path), safe_serialization=False)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["optimizer.bin", "pytorch_model.bin", "random_states_0.pkl", "scheduler.bin"]
    for name in names:
        assert_read_as_run(str(tmp_path / name))
    with open_pickle(tmp_path / "pytorch_model.bin", framework="torch") as file:
        assert_has_state(file, accelerator.unwrap_model(model).state_dict())


def test_sharded_model_of_transformers_as_bin_files(tmp_path: pathlib.Path) -> None:
    config = transformers.BertConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8, vocab_size=20
    )
    model = transformers.BertModel(config)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    with open_pickle(tmp_path / "pytorch_model.bin", framework="torch") as file:
        assert_has_state(file, model.state_dict())
    whole = open_pickle(saved(model), framework="torch")
    assert set(model.state_dict()) <= set(whole)


def test_bare_pickle_of_numpy() -> None:
    value = {
        "w": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": [np.float64(2.5)],
        "n": 3,
        "o": np.asfortranarray(np.eye(3)),
    }
    for protocol in (2, 3, 4, 5):
        data = pickle.dumps(value, protocol)
        with open_pickle(data) as file:
            assert file.form == "pickle"
            assert_same(file.tree, pickle.loads(data), protocol=protocol)
            assert_same(file.load_tree(), pickle.loads(data), protocol=protocol)
            assert list(file) == ["w", "o"]
            assert np.array_equal(file["w"][:, 1], value["w"][:, 1])
            assert np.array_equal(file["o"].load(), value["o"])


@pytest.mark.parametrize("protocol", [2, 5])
def test_tensors_in_a_bare_pickle(protocol: int) -> None:
    model = Tower()
    for value in ({"w": torch.ones(2), "b": torch.arange(3)}, nn.Parameter(torch.ones(2)), model.state_dict(), model):
        data = pickle.dumps(value, protocol)
        file = open_pickle(data, framework="torch")
        assert_same(file.load_tree(), pickle.loads(data), protocol=protocol)
        assert len(file) > 0


def test_open_and_load_take_files_of_torch(tmp_path: pathlib.Path) -> None:
    state = {"model": Tower().state_dict(), "step": 3}
    torch.save(state, tmp_path / "model.pt")
    with tensorkeep.open(tmp_path / "model.pt", framework="torch") as file:
        assert type(file) is PickleFile
        assert torch.equal(file["model.norm.weight"][1:], torch.ones(3))
    assert_same(tensorkeep.load(tmp_path / "model.pt", framework="torch"), run((tmp_path / "model.pt").read_bytes()))


@pytest.mark.parametrize("protocol", [2, 5])
def test_models_of_scikit_learn_and_matrices_of_scipy(protocol: int) -> None:
    features, labels = np.random.default_rng(0).random((20, 3)), np.arange(20) % 2
    models = {
        "forest": sklearn.ensemble.RandomForestClassifier(2, max_depth=2).fit(features, labels),
        "scaled": sklearn.pipeline.make_pipeline(
            sklearn.preprocessing.StandardScaler(), sklearn.linear_model.LogisticRegression()
        ).fit(features, labels),
        "matrix": scipy.sparse.csr_array(np.eye(3)),
    }
    for name, model in models.items():
        file = open_pickle(pickle.dumps({name: model}, protocol))
        assert_same(file.load_tree(), {name: model}, protocol=protocol)
        assert len(file) >= 3
    coefficients = models["scaled"].steps[1][1].coef_
    file = open_pickle(pickle.dumps(models["scaled"], protocol))
    assert np.array_equal(file["steps.1.1.coef_"].load(), coefficients)
    with pytest.raises(UnsafeError):
        open_pickle(pickle.dumps(models["scaled"], protocol), strict=True)


def test_parameters_that_skorch_saves(tmp_path: pathlib.Path) -> None:
    network = skorch.NeuralNetRegressor(
        nn.Linear, module__in_features=3, module__out_features=1, max_epochs=1, verbose=0
    )
    network.fit(np.ones((8, 3), np.float32), np.ones((8, 1), np.float32))
    network.save_params(f_params=tmp_path / "model.pt", f_optimizer=tmp_path / "optimizer.pt")
    assert_has_state(assert_read_as_run(str(tmp_path / "model.pt")), network.module_.state_dict())
    assert_read_as_run(str(tmp_path / "optimizer.pt"))


def test_namespace_of_megatron() -> None:
    state = {
        "args": argparse.Namespace(hidden_size=4, params_dtype=torch.bfloat16, data_path=["x"]),
        "model": {"language_model": {"embedding": {"weight": torch.ones(2, 3)}}},
        "rng_state": [
            {"np_rng_state": np.random.RandomState(1).get_state(), "torch_rng_state": torch.get_rng_state()}
        ],
    }
    file = assert_read_as_run(saved(state))
    assert next(iter(file)) == "model.language_model.embedding.weight"
    assert file.tree["args"]["hidden_size"] == 4
    assert not file.unknowns
