"""The alarm: names that are known to do harm, and honest names that must not set it off."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tensorkeep.formats.pickles.names._danger_list import _LISTED, danger_of, danger_of_call
from tensorkeep.formats.pickles.values._records import Unknown
from tests.support.for_each import for_each

CERTAIN = """
    os.system posix.system nt.system os.popen os.execv posix.execve subprocess.Popen subprocess.check_output
    pty.spawn builtins.eval builtins.exec builtins.compile builtins.open builtins.__import__ __builtin__.eval
    __builtin__.execfile builtins.setattr builtins.globals builtins.breakpoint commands.getoutput runpy.run_path
    runpy._run_code importlib.import_module imp.load_source code.interact code.InteractiveInterpreter
    codeop.compile_command pdb.run pdb.Pdb bdb.Bdb timeit.timeit timeit.main cProfile.run cProfile.runctx
    profile.run trace.Trace doctest.debug_script ctypes.CDLL _ctypes.dlopen ctypes.util.find_library pickle.loads
    _pickle.loads _pickle.Unpickler cPickle.loads cloudpickle.loads cloudpickle.cloudpickle._make_function
    dill.loads dill._dill._create_function joblib.load joblib.externals.loky.cloudpickle_wrapper
    joblib.externals.cloudpickle.cloudpickle._make_function marshal.loads shelve.open webbrowser.open
    urllib.request.urlopen http.client.HTTPConnection ftplib.FTP smtplib.SMTP telnetlib.Telnet socket.socket
    socket.create_connection _socket.socket asyncio.run asyncio.unix_events._UnixSelectorEventLoop
    asyncio.subprocess.create_subprocess_shell multiprocessing.Process multiprocessing.util.spawnv_passfds
    concurrent.futures.ThreadPoolExecutor threading.Thread signal.signal platform.popen pip._internal.main pip.main
    venv.create ensurepip._run_pip idlelib.pyshell.ModifiedInterpreter.runcode
    idlelib.autocomplete.AutoComplete.get_entity idlelib.calltip.get_entity lib2to3.pgen2.grammar.Grammar.loads
    lib2to3.pgen2.pgen.ParserGenerator.make_label distutils.file_util.write_file sysconfig._main types.CodeType
    types.FunctionType gc.get_objects weakref.finalize atexit.register site.main
    test.support.script_helper.assert_python_ok unittest.main shutil.rmtree shutil.copyfile sys.settrace sys.modules
    sys._getframe io.open io.FileIO _io.FileIO _pyio.open codecs.open tempfile.NamedTemporaryFile zipfile.ZipFile
    tarfile.open sqlite3.connect linecache.getlines logging.config.dictConfig pydoc.pipepager pydoc.locate
    pkgutil.resolve_name uuid._get_command_stdout _osx_support._read_output _aix_support._read_cmd_output
    _posixsubprocess.fork_exec _winapi.CreateProcess _testcapi.run_in_subinterp _xxsubinterpreters.run_string
    faulthandler._sigsegv imaplib.IMAP4_stream ssl.get_server_certificate _pyrepl.pager.pipe_pager mailcap.findmatch
    antigravity.webbrowser numpy.load numpy.lib.npyio.load numpy.fromfile numpy.testing._private.utils.runstring
    numpy.testing.runstring numpy.f2py.crackfortran._eval_length numpy.f2py.compile
    numpy.distutils.exec_command.exec_command numpy.ctypeslib.load_library torch.load torch.serialization.load
    torch.hub.load torch.hub.load_state_dict_from_url torch.jit.load torch.utils.cpp_extension.load_inline
    torch.utils.collect_env.run torch._inductor.codecache.compile_file torch.utils.bottleneck.__main__.run_cprofile
    torch.utils.bottleneck.__main__.run_autograd_prof torch.distributed.rpc.rpc_sync
    torch._dynamo.guards.GuardBuilder.get torch.jit.unsupported_tensor_ops.execWrapper
    torch.fx.experimental.symbolic_shapes.ShapeEnv.evaluate_guards_expression
    torch.utils._config_module.ConfigModule.load_config torch.utils.data.datapipes.utils.decoder.basichandlers
    torch.ops.load_library torch.UntypedStorage.from_file pandas.read_pickle pandas.io.pickle.read_pickle
    pandas.eval pandas.core.computation.eval.eval keras.layers.core.Lambda keras.src.layers.core.lambda_layer.Lambda
    IPython.core.interactiveshell.InteractiveShell six.moves.builtins.eval six.moves.cPickle.loads yaml.unsafe_load
    hydra.utils.instantiate transformers.dynamic_module_utils.get_class_from_dynamic_module operator.call
    new.function
"""
"""What public advisories and the lists of other scanners name, and what they forgot."""

WALKS = [
    ("torch.serialization", "os.system"),
    ("torch.serialization", "os"),
    ("random", "_os.system"),
    ("tempfile", "_shutil.rmtree"),
    ("collections", "_sys.modules"),
    ("torch", "_utils.sys"),
    ("collections", "OrderedDict.__class__"),
    ("collections", "namedtuple.__globals__"),
    ("builtins", "object.__subclasses__"),
    ("torch.nn", "Module.__init__.__globals__"),
    ("torch.storage", "np.load"),
    ("numpy", "ndarray.tofile"),
    ("pathlib", "PosixPath.write_text"),
    ("anything", "__builtins__"),
    ("anything", "__loader__.load_module"),
    ("anything", "a." * 100_000),
    ("six.moves", "builtins.eval"),
]

SUSPICIOUS = [
    ("builtins", "getattr"),
    ("__builtin__", "getattr"),
    ("functools", "partial"),
    ("functools", "reduce"),
    ("operator", "attrgetter"),
    ("_operator", "methodcaller"),
    ("torch.storage", "_load_from_bytes"),
    ("torch.fx.graph_module", "reduce_graph_module"),
    ("builtins", "map"),
]

HONEST = """
    argparse.Namespace types.SimpleNamespace types.MappingProxyType collections.OrderedDict collections.Counter
    collections.defaultdict collections.deque datetime.datetime datetime.timedelta datetime.timezone decimal.Decimal
    fractions.Fraction uuid.UUID uuid.SafeUUID pathlib.PosixPath pathlib.WindowsPath pathlib.PurePosixPath
    pathlib._local.PosixPath _codecs.encode copyreg._reconstructor copyreg.__newobj__ copyreg.__newobj_ex__
    copy_reg._reconstructor __builtin__.object __builtin__.set __builtin__.xrange builtins.set builtins.bytearray
    builtins.complex builtins.range builtins.slice builtins.type builtins.object builtins.int builtins.print
    builtins.Exception builtins.NotImplementedError io.BytesIO io.StringIO logging.getLogger random.Random
    time.struct_time operator.itemgetter operator.add functools.lru_cache os.stat_result posix.stat_result
    posixpath.join os.path.join subprocess.CalledProcessError subprocess.TimeoutExpired socket.AddressFamily
    signal.Signals http.HTTPStatus http.cookiejar.CookieJar urllib.parse.ParseResult inspect.Signature
    inspect._ParameterKind inspect.Parameter weakref.WeakValueDictionary asyncio.exceptions.CancelledError
    concurrent.futures._base.TimeoutError enum.Enum numpy.core.multiarray._reconstruct
    numpy._core.multiarray._reconstruct numpy.core.multiarray.scalar numpy.ndarray numpy.dtype
    numpy.random._pickle.__randomstate_ctor numpy.random._pickle.__generator_ctor
    numpy.random._pickle.__bit_generator_ctor numpy.random.bit_generator.__pyx_unpickle_SeedSequence numpy.trace
    numpy.float64 numpy.ma.core._mareconstruct torch._utils._rebuild_tensor_v2 torch._utils._rebuild_parameter
    torch._tensor._rebuild_from_type_v2 torch.FloatStorage torch.storage.UntypedStorage torch.storage.TypedStorage
    torch.Size torch.device torch.float32 torch.trace torch.jit.trace torch.serialization._get_layout
    torch.torch_version.TorchVersion torch.nn.modules.linear.Linear torch.nn.modules.container.Sequential
    torch.nn.parallel.distributed.DistributedDataParallel torch.optim.adamw.AdamW torch.optim.lr_scheduler.LambdaLR
    torch.utils.data.dataloader.DataLoader torch.utils.data.dataset.TensorDataset
    torch.distributed.checkpoint.metadata.Metadata torch.distributed.checkpoint.filesystem._StorageInfo
    torch.distributed.tensor.DTensor torch.nn.utils.parametrize.ParametrizationList torch._C.Generator
    torch.ao.quantization.qconfig.QConfig torch.nn.functional.relu __torch__.os.Net
    __torch__.torch.nn.modules.linear.Linear transformers.training_args.TrainingArguments
    transformers.trainer_utils.IntervalStrategy transformers.trainer_utils.HubStrategy
    transformers.models.bert.configuration_bert.BertConfig transformers.tokenization_utils_base.AddedToken
    accelerate.state.PartialState accelerate.utils.dataclasses.DistributedType omegaconf.dictconfig.DictConfig
    omegaconf.base.ContainerMetadata pytorch_lightning.utilities.parsing.AttributeDict
    lightning.pytorch.callbacks.model_checkpoint.ModelCheckpoint deepspeed.runtime.fp16.loss_scaler.LossScaler
    deepspeed.runtime.zero.config.ZeroStageEnum fairseq.data.dictionary.Dictionary
    ultralytics.nn.tasks.DetectionModel models.yolo.Model models.common.Conv code.models.Net test.Net
    sched.CosineSchedule commands.Move sklearn.ensemble._forest.RandomForestClassifier sklearn.tree._tree.Tree
    scipy.sparse._csr.csr_matrix pandas.core.frame.DataFrame pandas._libs.internals._unpickle_block
    pandas.core.indexes.base._new_Index PIL.Image.Image sentencepiece.SentencePieceProcessor
    skorch.classifier.NeuralNetClassifier packaging.version.Version pkg_resources.extern.packaging.version.Version
    ctypes.c_int jax._src.array._reconstruct_array keras.src.models.functional.Functional xgboost.core.Booster
    __main__.Net __main__.Config
"""


def split(path: str) -> tuple[str, str]:
    module, _, name = path.rpartition(".")
    return module, name


@for_each("path", CERTAIN.split())
def test_what_could_only_do_harm_is_known(path: str) -> None:
    parts = path.split(".")
    for n in range(1, len(parts)):  # whichever part of the path the pickle calls the module
        danger = danger_of(".".join(parts[:n]), ".".join(parts[n:]))

        assert danger is not None
        assert danger.is_certain
        assert danger.reason


@pytest.mark.parametrize(("module", "name"), WALKS)
def test_names_that_walk_are_followed(module: str, name: str) -> None:
    danger = danger_of(module, name)

    assert danger is not None
    assert danger.is_certain


@pytest.mark.parametrize(("module", "name"), SUSPICIOUS)
def test_what_honest_files_hold_too_is_suspicious(module: str, name: str) -> None:
    danger = danger_of(module, name)

    assert danger is not None
    assert not danger.is_certain


@for_each("path", HONEST.split())
def test_honest_names_are_no_alarm(path: str) -> None:
    assert danger_of(*split(path)) is None


@pytest.mark.parametrize(
    ("module", "name", "args"),
    [
        ("builtins", "getattr", (Unknown("torch.nn", "Module"), "__globals__")),
        ("builtins", "getattr", (Unknown("pathlib", "Path", ("x",)), "write_text")),
        ("builtins", "getattr", (Unknown("torch", "serialization"), "os")),
        ("__builtin__", "getattr", ({}, "__class__")),
        ("operator", "attrgetter", ("__init__.__globals__",)),
        ("_operator", "attrgetter", ("x", "os.system")),
        ("operator", "methodcaller", ("system", "id")),
    ],
)
def test_a_call_that_reaches_behind_an_object_is_known(module: str, name: str, args: tuple[object, ...]) -> None:
    danger = danger_of_call(module, name, args)

    assert danger is not None
    assert danger.is_certain


@pytest.mark.parametrize(
    ("module", "name", "args"),
    [
        ("builtins", "getattr", (Unknown("my.colors", "Color"), "RED")),
        ("builtins", "getattr", (Unknown("my.model", "Net", ()), "forward")),
        ("operator", "attrgetter", ("shape",)),
        ("functools", "partial", (Unknown("my.model", "make"),)),
    ],
)
def test_honest_calls_stay_suspicious(module: str, name: str, args: tuple[object, ...]) -> None:
    danger = danger_of_call(module, name, args)

    assert danger is not None
    assert not danger.is_certain


def test_a_call_of_an_unlisted_name_is_not_known() -> None:
    assert danger_of_call("my.model", "Net", ("os.system",)) is None


def test_listed_names_exist() -> None:
    """A misprint in the list would not be seen otherwise."""
    listed = [path.split(".", 1) for path in _LISTED if path.startswith(("builtins.", "torch.", "os.", "io."))]
    of_python_2 = {"apply", "execfile", "file", "raw_input", "reduce", "reload"}

    missing = {name for module, name in listed if not exists(importlib.import_module(module), f"{module}.{name}")}

    assert missing - of_python_2 <= ELSEWHERE


ELSEWHERE = {
    "_export.load",
    "utils.bottleneck",
    "utils.tensorboard",
}
"""Names that are there in other versions, or once something else is imported."""


def exists(library: Any, path: str) -> bool:
    """Say whether a path leads to something: attributes of a module, or modules that nobody has imported yet."""
    found = library
    for number, name in enumerate(path.split(".")[1:], start=2):
        if not hasattr(found, name):
            try:
                importlib.import_module(".".join(path.split(".")[:number]))
            except ImportError:
                return False
        found = getattr(found, name)
    return True
