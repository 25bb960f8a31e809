"""Names that are known to run code or to touch the system.

This list is an alarm, never the defence. Whatever a pickle names, nothing is imported, and a name missing here is
just as inert as one listed. The list only decides what a report says, and that a file with names that could only do
harm is refused instead of opened.

A name is looked up by its dotted path, the longest listed prefix first: `os` lists the whole module, and
`os.stat_result` is an exception to it. Names that reach a dangerous module through a harmless one, such as
`os.system` in the module `torch.serialization`, are looked up from each of their parts.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import msgspec

from tensorkeep.formats.pickles.values import Unknown


class Danger(msgspec.Struct, frozen=True):
    """Why a name is known to be dangerous.

    Attributes:
        reason: What it does, to be read after the name, such as `"runs commands"`.
        is_certain: Whether it could only do harm. If not, honest files contain it too.
    """

    reason: str
    is_certain: bool


@lru_cache(maxsize=4096)
def danger_of(module: str, name: str) -> Danger | None:
    """Return why a name is known to be dangerous, or None."""
    parts = name.split(".", _MAX_DEPTH)
    if len(parts) > _MAX_DEPTH:
        return _ENDLESS
    if len(parts) == 1 and name.endswith(_EXCEPTION_ENDINGS):
        return None
    components = module.split(".", _MAX_DEPTH)[:_MAX_DEPTH]
    if not _CARRIERS.isdisjoint(components):
        return _CARRIED
    return _worse(_listed([*components, *parts]), _reached(module, parts))


def danger_of_call(module: str, name: str, args: tuple[Any, ...]) -> Danger | None:
    """Return why a call is known to be dangerous, by its arguments if the name alone does not decide."""
    danger = danger_of(module, name)
    if danger is None or danger.is_certain or name not in _REACHING:
        return danger
    owner: Any = None
    names = args
    if name == "getattr":
        owner, names = args[0] if args else None, args[1:2]
    home, prefix = (owner.module, f"{owner.name}.") if type(owner) is Unknown else ("", "object.")
    reached = [danger_of(home, prefix + text) for text in names if type(text) is str]
    return next((found for found in reached if found is not None and found.is_certain), danger)


def _worse(first: Danger | None, second: Danger | None) -> Danger | None:
    if first is None or (second is not None and second.is_certain and not first.is_certain):
        return second
    return first


def _listed(parts: list[str]) -> Danger | None:
    """Look up the longest listed prefix of a dotted path."""
    while parts[:2] == ["six", "moves"]:
        parts = parts[2:]
    if not parts:
        return None
    path = [_SAME_MODULE.get(parts[0], parts[0]), *parts[1:_MAX_DEPTH]]
    for n_parts in range(len(path), 0, -1):
        beginning = ".".join(path[:n_parts])
        if beginning in _LISTED:
            return _LISTED[beginning]
    return None


def _reached(module: str, parts: list[str]) -> Danger | None:
    """Return what makes a name a way to something dangerous: a module, or the internals of an object."""
    found = None
    for place, part in enumerate(parts):
        if part in _INNER_NAMES:
            return _INSIDES
        if place and part in _METHODS:
            return _METHOD
        if part.startswith("__") and part.endswith("__") and (module, part) not in _HONEST_DUNDERS:
            found = _worse(found, _DUNDER)
        public = part.lstrip("_")
        if public in _WELL_KNOWN_MODULES:
            return _listed([public, *parts[place + 1 :]]) or _MODULE
        if place < len(parts) - 1:
            found = _worse(found, _listed([public, *parts[place + 1 :]]))
    return found


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_MAX_DEPTH: Final = 12
"""Parts of a dotted name that are examined; no honest name has so many."""

_EXCEPTION_ENDINGS: Final = ("Error", "Exception", "Warning", "TimeoutExpired")
"""Exception classes do nothing, whatever their module, and honest files contain caught exceptions."""

_ENDLESS: Final = Danger("has more parts than any honest name", is_certain=True)
_CARRIED: Final = Danger("builds functions from code in the file", is_certain=True)
_INSIDES: Final = Danger("reaches the internals of an object", is_certain=True)
_DUNDER: Final = Danger("reaches a method that Python calls implicitly", is_certain=False)
_METHOD: Final = Danger("is a method that touches the system", is_certain=True)
_MODULE: Final = Danger("reaches a module that touches the system", is_certain=True)

_CARRIERS: Final = _words("cloudpickle cloudpickle_fast dill _dill pickle5")
"""Libraries that put code into pickles; other libraries vendor copies of them."""

_INNER_NAMES: Final = _words("""
    __base__ __bases__ __builtin__ __builtins__ __call__ __class__ __closure__ __code__ __defaults__ __delattr__
    __dict__ __func__ __getattr__ __getattribute__ __globals__ __import__ __init_subclass__ __kwdefaults__
    __loader__ __mro__ __reduce__ __reduce_ex__ __self__ __setattr__ __setstate__ __spec__ __subclasses__
    __wrapped__ f_back f_builtins f_code f_globals f_locals func_code func_globals gi_code gi_frame im_func tb_frame
    """)

_METHODS: Final = _words("""
    check_output dump from_file load_library popen read_bytes read_text rmdir run_cell runcode runsource symlink_to
    system tofile to_pickle unlink write_bytes write_text
    """)
"""Methods that do harm on whatever class they are reached."""

_REACHING: Final = _words("getattr attrgetter methodcaller")
"""Functions that access attributes by name."""

_HONEST_DUNDERS: Final = {("copyreg", "__newobj__"), ("copyreg", "__newobj_ex__"), ("copy_reg", "__newobj__")}

_WELL_KNOWN_MODULES: Final = _words("""
    os nt posix sys builtins subprocess commands pty shutil socket importlib imp runpy ctypes pickle cPickle marshal
    shelve multiprocessing asyncio threading tempfile cloudpickle dill joblib webbrowser pip pdb bdb cProfile timeit
    """)
"""Modules whose names are unmistakable: wherever one appears in a dotted name, it means this module."""

_SAME_MODULE: Final = {
    "__builtin__": "builtins",
    "__builtins__": "builtins",
    "_io": "io",
    "_operator": "operator",
    "_functools": "functools",
    "_pickle": "pickle",
    "cPickle": "pickle",
    "_socket": "socket",
    "_ssl": "ssl",
    "_asyncio": "asyncio",
    "_ctypes": "ctypes",
    "_multiprocessing": "multiprocessing",
    "_signal": "signal",
    "_sqlite3": "sqlite3",
    "_typing": "typing",
    "_weakref": "weakref",
    "_bz2": "bz2",
    "_lzma": "lzma",
    "_tkinter": "tkinter",
    "_curses": "curses",
    "_winreg": "winreg",
    "nt": "os",
    "posix": "os",
    "riscos": "os",
    "thread": "_thread",
    "np": "numpy",
    "pd": "pandas",
    "tf": "tensorflow",
}
"""First part of a path to the name that the lists below use."""

_CERTAIN: Final = {
    "touches the system": "os",
    "runs commands": """
        os.system os.popen os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe
        os.posix_spawn os.posix_spawnp os.spawnl os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp
        os.spawnvpe subprocess subprocess32 _posixsubprocess _bootsubprocess _winapi pty commands.getoutput
        commands.getstatusoutput popen2 pipes mailcap platform.popen platform._syscmd_file platform._syscmd_ver
        uuid._get_command_stdout _osx_support _aix_support ctypes.util asyncio.subprocess
        asyncio.create_subprocess_exec asyncio.create_subprocess_shell asyncio.unix_events asyncio.windows_events
        asyncio.windows_utils asyncio.base_subprocess imaplib.IMAP4_stream pydoc _pyrepl distutils setuptools
        ensurepip venv virtualenv pip test.support test.libregrtest test.regrtest sysconfig._main webbrowser
        antigravity idlelib turtledemo IPython ipykernel jupyter_client jupyter_core pexpect ptyprocess plumbum
        invoke.run invoke.context fabric.Connection paramiko psutil.Popen gevent.subprocess gevent.os eventlet.green
        tornado.process twisted.internet anyio.run_process anyio.open_process trio.run_process git.cmd git.Git
        git.Repo docker.from_env win32api win32com win32process conda.cli conda.base sh.Command sh.bash
        sched.scheduler numpy.distutils numpy.f2py numpy.testing torch.utils.collect_env torch.utils.bottleneck
        torch.utils.cpp_extension torch._inductor.codecache torch._inductor.cpp_builder
        torch._inductor.compile_worker torch._appdirs torch.distributed.run torch.distributed.launch
        torch.distributed.launcher torch.distributed.elastic.multiprocessing torch._utils_internal
        torch.utils.benchmark torch.utils._cpp_extension_versioner triton.runtime.build triton.compiler
        deepspeed.launcher deepspeed.ops.op_builder accelerate.commands transformers.commands datasets.commands
        lightning.fabric.cli lightning_fabric.cli llvmlite skimage._build spacy.cli spacy.util.run_command
        nltk.downloader nltk.internals.java
        """,
    "evaluates code": """
        builtins.eval builtins.exec builtins.execfile builtins.compile builtins.apply builtins.__build_class__
        code.interact code.InteractiveInterpreter code.InteractiveConsole code.compile_command codeop
        compiler.compile pdb bdb timeit cProfile _lsprof profile.run profile.runctx profile.Profile trace.Trace
        doctest runpy py_compile compileall rlcompleter cgitb rexec ihooks lib2to3 dataclasses._create_fn
        typing.get_type_hints typing._eval_type typing.ForwardRef._evaluate annotationlib gettext.c2py
        logging.config unittest _pytest pytest nose.core nose.run coverage.execfile _testcapi _testinternalcapi
        _xxsubinterpreters _interpreters concurrent.interpreters pandas.eval pandas.core.computation
        pandas.DataFrame.eval pandas.DataFrame.query pandas.core.frame.DataFrame.eval
        pandas.core.frame.DataFrame.query numexpr.evaluate numexpr.necompiler sympy.sympify sympy.parsing
        sympy.core.sympify sympy.lambdify sympy.utilities.lambdify simpleeval asteval jinja2.Template
        jinja2.Environment jinja2.environment.Template jinja2.environment.Environment mako numpy.lib.utils.safe_eval
        scipy.weave torch._dynamo.guards torch._dynamo.utils.import_submodule torch.fx.experimental.symbolic_shapes
        torch.jit.unsupported_tensor_ops torch.utils._config_module torch.utils.data.datapipes.utils.decoder
        torch._dynamo.bytecode_transformation torch._dynamo.repro torch._dynamo.debug_utils torch.distributed.nn.jit
        torch.cuda._memory_viz torch.testing._internal torch._export.serde torch.jit._script.script
        torch.jit.CompilationUnit torch._C.CompilationUnit torch.jit.frontend keras.layers.Lambda
        keras.layers.core.Lambda keras.layers.core.lambda_layer keras.src.layers.core.Lambda
        keras.src.layers.core.lambda_layer keras.utils.func_load keras.utils.generic_utils.func_load
        keras.src.utils.python_utils tensorflow.keras.layers.Lambda tensorflow.python.keras.layers.core.Lambda
        tensorflow.py_function tensorflow.numpy_function tensorflow.python.ops.script_ops hydra.utils.instantiate
        hydra.utils.call hydra._internal vllm.utils.run_method werkzeug.debug flask.cli
        """,
    "builds code": """
        new.code new.function new.instancemethod new.classobj types.CodeType types.FunctionType types.LambdaType
        types.new_class marshal
        """,
    "imports modules": """
        builtins.__import__ builtins.reload importlib imp _imp _frozen_importlib _frozen_importlib_external
        zipimport zipapp pkgutil modulefinder site sitecustomize usercustomize pkg_resources pyclbr
        copyreg.add_extension copy_reg.add_extension django.utils.module_loading werkzeug.utils.import_string
        hydra.utils.get_class hydra.utils.get_method hydra.utils.get_object pyximport lazy_loader numpy.lookfor
        numpy.lib.utils.lookfor numpy.source numpy.lib.utils.source torch.package.package_importer
        torch.package.PackageImporter transformers.dynamic_module_utils diffusers.utils.dynamic_modules_utils
        transformers.utils.import_utils._LazyModule transformers.utils.import_utils.direct_transformers_import
        """,
    "unpickles": """
        pickle shelve dbm anydbm whichdb dumbdbm gdbm jsonpickle joblib.load joblib.numpy_pickle.load
        joblib.numpy_pickle_compat joblib.externals joblib.memory joblib.parallel sklearn.externals.joblib
        pandas.read_pickle pandas.io.pickle pandas.compat.pickle_compat pandas.io.api.read_pickle pandas.to_pickle
        numpy.load numpy.lib.npyio numpy.lib._npyio_impl numpy.lib.format numpy.lib._format_impl torch.load
        torch.jit.load torch.jit._serialization.load torch.serialization.load torch.serialization._load
        torch.serialization._legacy_load torch.export.load torch._export.load
        torch._C._import_ir_module_from_package torch._C.import_ir_module torch._C.import_ir_module_from_buffer
        torch.utils.show_pickle torch.distributed.rpc torch.distributed.checkpoint.load
        torch.distributed.checkpoint.state_dict_loader torch.distributed.checkpoint.format_utils
        torch.distributed.checkpoint.filesystem.FileSystemReader torch._weights_only_unpickler yaml.load
        yaml.load_all yaml.unsafe_load yaml.unsafe_load_all yaml.full_load yaml.full_load_all yaml.loader
        yaml.constructor ruamel skops.io mlflow.pyfunc mlflow.sklearn mlflow.pytorch keras.models.load_model
        keras.saving keras.src.saving.saving_api keras.src.saving.saving_lib tensorflow.keras.models.load_model
        tensorflow.saved_model.load nltk.data.load compress_pickle hickle
        """,
    "opens files": """
        os.open os.fdopen os.listdir os.scandir os.walk os.read os.readlink builtins.open builtins.file
        io.open io.open_code io.FileIO _pyio codecs.open gzip.open gzip.GzipFile
        bz2.open bz2.BZ2File lzma.open lzma.LZMAFile tarfile zipfile shutil tempfile fileinput linecache
        tokenize.open uu quopri.main wave.open sunau.open aifc.open sqlite3 readline mmap fcntl macpath.os dircache
        logging.FileHandler logging.basicConfig logging.handlers numpy.fromfile numpy.core.multiarray.fromfile
        numpy._core.multiarray.fromfile numpy.core.records.fromfile numpy._core.records.fromfile numpy.loadtxt
        numpy.savetxt numpy.genfromtxt numpy.fromregex numpy.save numpy.savez numpy.savez_compressed
        numpy.DataSource numpy.lib._datasource numpy.ndarray.tofile numpy.ndarray.dump numpy.lib.DataSource
        torch.save torch.serialization.save torch.from_file torch.UntypedStorage.from_file
        torch.storage.UntypedStorage.from_file torch.FloatStorage.from_file torch.jit.save torch.utils.hipify
        torch.utils.tensorboard torch.utils.model_dump pandas.io.common pandas.read_csv pandas.read_sql
        pandas.io.sql pandas.DataFrame.to_csv tensorflow.io tensorflow.raw_ops tensorflow.python.ops.gen_io_ops
        tensorflow.python.lib.io fsspec.open fsspec.core.open
        """,
    "changes files": """
        os.mkdir os.makedirs os.mkfifo os.mknod os.remove os.unlink os.rmdir os.removedirs os.rename os.renames
        os.replace os.link os.symlink os.chmod os.fchmod os.chown os.fchown os.lchown os.truncate os.ftruncate
        os.utime os.write os.pwrite os.writev os.pwritev os.sendfile
        """,
    "loads native code": """
        ctypes.CDLL ctypes.PyDLL ctypes.WinDLL ctypes.OleDLL ctypes.LibraryLoader ctypes.cdll ctypes.pydll
        ctypes.windll ctypes.oledll ctypes.pythonapi ctypes.dlopen ctypes.LoadLibrary ctypes.call_function
        ctypes.call_cdeclfunction ctypes.CFUNCTYPE ctypes.PYFUNCTYPE ctypes.WINFUNCTYPE dl.open cffi _cffi_backend
        numpy.ctypeslib torch.ops.load_library torch._ops._Ops.load_library torch.classes.load_library
        torch._classes pythoncom tensorflow.load_library tensorflow.load_op_library
        tensorflow.python.framework.load_library winreg msilib _msi
        """,
    "reads or writes memory": """
        ctypes.memmove ctypes.memset ctypes.string_at ctypes.wstring_at ctypes.PyObj_FromPtr ctypes.cast
        numpy.lib.stride_tricks.as_strided
        """,
    "reaches the network": """
        socket socketserver SocketServer ssl.get_server_certificate ssl.SSLSocket http.client http.server httplib
        BaseHTTPServer SimpleHTTPServer CGIHTTPServer urllib.request urllib.urlopen urllib.urlretrieve
        urllib.URLopener urllib.FancyURLopener urllib2 urllib.robotparser ftplib smtplib smtpd telnetlib poplib
        imaplib nntplib asyncore asynchat wsgiref xmlrpc xmlrpclib SimpleXMLRPCServer DocXMLRPCServer cgi
        requests.get requests.post requests.put requests.patch requests.delete requests.head requests.options
        requests.request requests.api urllib3.PoolManager urllib3.request httpx.get httpx.post httpx.request
        httpx._api aiohttp.request aiohttp.client wget.download gdown boto3.client boto3.resource boto3.session
        torch.hub torch.distributed.elastic.rendezvous torch.utils.model_zoo torchvision.datasets.utils
        huggingface_hub.hf_hub_download huggingface_hub.snapshot_download huggingface_hub.file_download
        huggingface_hub._snapshot_download huggingface_hub.HfApi huggingface_hub.hf_api huggingface_hub.upload_file
        transformers.utils.hub.cached_file transformers.utils.hub.get_file_from_repo
        transformers.utils.hub.download_url keras.utils.get_file keras.src.utils.file_utils
        tensorflow.keras.utils.get_file
        """,
    "starts threads or processes": """
        os.fork os.forkpty
        asyncio threading.Thread threading.Timer threading._start_new_thread _thread concurrent.futures
        multiprocessing.Process multiprocessing.Pool multiprocessing.process multiprocessing.pool.Pool
        multiprocessing.pool.ThreadPool multiprocessing.context multiprocessing.spawn multiprocessing.forkserver
        multiprocessing.util multiprocessing.popen_fork multiprocessing.popen_forkserver
        multiprocessing.popen_spawn_posix multiprocessing.popen_spawn_win32 multiprocessing.connection
        multiprocessing.reduction multiprocessing.managers multiprocessing.shared_memory
        multiprocessing.resource_tracker multiprocessing.resource_sharer multiprocess pathos billiard
        torch.multiprocessing.spawn torch.multiprocessing.start_processes torch.multiprocessing.reductions
        """,
    "reads or changes any object": """
        builtins.setattr builtins.delattr builtins.globals builtins.locals builtins.vars sys gc inspect.currentframe
        inspect.stack inspect.getmembers inspect.getattr_static inspect.getmodule inspect.trace
        inspect.getinnerframes inspect.getouterframes operator.call tracemalloc
        """,
    "ends, stops or takes over the process": """
        os._exit os.abort os.kill os.killpg os.chdir os.chroot os.putenv os.unsetenv os.setuid os.setgid
        builtins.exit builtins.quit builtins.breakpoint builtins.help builtins.input builtins.raw_input
        _sitebuiltins atexit signal faulthandler termios tty curses tkinter select selectors syslog winsound
        resource.setrlimit weakref.finalize readline
        """,
}
"""Names that could only do harm in a checkpoint: reason to dotted paths."""

_SUSPICIOUS: Final = {
    "reads any attribute": "builtins.getattr operator.attrgetter inspect",
    "builds calls": """
        functools.partial functools.reduce builtins.map builtins.filter builtins.reduce operator.methodcaller
        itertools.starmap types.MethodType types.CellType types.ModuleType functools.partialmethod numpy.frompyfunc
        """,
    "builds classes": "dataclasses.make_dataclass collections.namedtuple",
    "unpickles": """
        torch.storage._load_from_bytes torch.package numba.core.serialize numba.serialize
        """,
    "compiles code from the file": """
        torch.fx.graph_module torch.fx._symbolic_trace torch._dynamo torch._inductor
        """,
    "opens files": "numpy.memmap numpy.core.memmap numpy._core.memmap glob fsspec",
    "loads native code": "ctypes torch.ops torch._ops",
    "starts threads or processes": "threading multiprocessing torch.multiprocessing concurrent",
    "reaches the network": "ssl boto3 botocore huggingface_hub urllib3 torch.distributed.elastic",
    "looks at the system": "pwd grp getpass resource time.sleep os.environ os.environb os._Environ codecs.register",
}
"""Names that may do harm, but occur in honest checkpoints too: reason to dotted paths."""

_HARMLESS: Final = """
    os.path os.stat_result os.statvfs_result os.terminal_size os.times_result os.uname_result os.PathLike os.fspath
    signal.Signals signal.Handlers signal.Sigmasks socket.AddressFamily socket.SocketKind socket.AddressInfo
    inspect.Signature inspect.Parameter inspect._ParameterKind inspect._empty inspect.BoundArguments
    ctypes._unpickle ctypes.c_int ctypes.c_uint ctypes.c_long ctypes.c_float ctypes.c_double ctypes.c_bool
    ctypes.c_char ctypes.c_byte ctypes.c_ubyte ctypes.c_short ctypes.c_ushort ctypes.c_int64 ctypes.c_uint64
    threading.Lock threading.RLock _thread.lock _thread.RLock _thread.allocate_lock sys.version_info sys.maxsize
    huggingface_hub.utils pkg_resources.extern.packaging setuptools.extern.packaging setuptools._vendor.packaging
    pip._vendor.packaging numpy.lib.format.dtype_to_descr numpy.lib.format.descr_to_dtype
    torch.fx.experimental.symbolic_shapes.DimDynamic
    """
"""Exceptions to both lists."""


def _paths() -> dict[str, Danger | None]:
    """Invert the lists: dotted path to danger, or None if harmless."""
    listed: dict[str, Danger | None] = {}
    for table, is_certain in ((_SUSPICIOUS, False), (_CERTAIN, True)):
        for reason, paths in table.items():
            listed |= dict.fromkeys(_words(paths), Danger(reason, is_certain))
    return listed | dict.fromkeys(_words(_HARMLESS), None)


_LISTED: Final = _paths()
