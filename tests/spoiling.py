"""A study whose trials misbehave in turn, each followed by an ordinary one that notices what it was left."""

STUDY = """
import atexit, builtins, decimal, faulthandler, gc, io, json, locale, logging, math, multiprocessing, os, pickle, random
import resource, shutil, signal, socket, subprocess, sys, tempfile, threading, time, warnings, zlib
import numpy as np

def limit(which, soft):
    hard = resource.getrlimit(which)[1]
    resource.setrlimit(which, (soft, hard))

def cwd_deleted():
    os.chdir(folder := tempfile.mkdtemp())
    os.rmdir(folder)

def left_thread(work, daemon):
    threading.Thread(target=work, daemon=daemon).start()

def left_child(daemon):
    multiprocessing.get_context("fork").Process(target=time.sleep, args=(20,), daemon=daemon).start()

def burn():
    until = time.monotonic() + 3
    while time.monotonic() < until:
        pass

def unclosed():
    builtins.kept = [open(os.devnull) for _ in range(200)]

def raising(error):
    raise error

class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError

class Unpicklable(Exception):
    def __reduce__(self):
        raise RuntimeError

def forked():
    if os.fork() == 0:
        return
    os.wait()

KINDS = [
    lambda: limit(resource.RLIMIT_NOFILE, 24),
    lambda: limit(resource.RLIMIT_AS, 2**28),
    lambda: limit(resource.RLIMIT_FSIZE, 0),
    lambda: limit(resource.RLIMIT_STACK, 2**20),
    lambda: limit(resource.RLIMIT_NPROC, 1),
    lambda: os.chdir("/"),
    cwd_deleted,
    lambda: os.environ.update(PATH="/nowhere", HOME="/nowhere"),
    os.environ.clear,
    lambda: os.umask(0o777),
    lambda: left_thread(lambda: time.sleep(20), True),
    lambda: left_thread(lambda: time.sleep(3), False),
    lambda: left_thread(burn, True),
    lambda: left_child(True),
    lambda: left_child(False),
    lambda: subprocess.Popen(["sleep", "20"]),
    forked,
    lambda: sys.stdout.close(),
    lambda: setattr(sys, "stdout", None),
    lambda: (os.close(1), os.close(2)),
    lambda: os.close(0),
    lambda: os.dup2(os.open(os.devnull, os.O_RDWR), 0),
    lambda: sys.exit(3),
    lambda: os._exit(0),
    lambda: os.kill(os.getpid(), signal.SIGKILL),
    lambda: os.kill(os.getpid(), signal.SIGTERM),
    lambda: os.closerange(3, 400),
    lambda: print("y" * 20_000_000),
    lambda: setattr(builtins, "open", None),
    lambda: setattr(builtins, "print", None),
    lambda: setattr(builtins, "len", None),
    lambda: setattr(builtins, "isinstance", lambda *_: True),
    lambda: setattr(builtins, "Exception", None),
    lambda: setattr(json, "dumps", None),
    lambda: setattr(json, "dumps", lambda *_, **__: "{}"),
    lambda: setattr(pickle, "dumps", None),
    lambda: setattr(time, "time", lambda: 0.0),
    lambda: setattr(time, "sleep", None),
    lambda: setattr(os, "getpid", lambda: 1),
    lambda: setattr(os, "fork", None),
    lambda: setattr(os.path, "join", None),
    lambda: setattr(random, "random", lambda: 0.5),
    lambda: setattr(np.random, "rand", lambda: 0.5),
    lambda: setattr(np, "log", np.exp),
    lambda: setattr(math, "sqrt", abs),
    lambda: setattr(subprocess, "Popen", None),
    lambda: setattr(threading.Thread, "start", None),
    lambda: setattr(tempfile, "tempdir", "/nowhere"),
    lambda: setattr(tuner, "report", None),
    lambda: [sys.modules.pop(name) for name in ("json", "random", "tempfile")],
    lambda: sys.path.clear(),
    lambda: setattr(sys, "path", []),
    lambda: locale.setlocale(locale.LC_ALL, "C"),
    lambda: warnings.simplefilter("error"),
    lambda: sys.setrecursionlimit(120),
    gc.disable,
    lambda: atexit.register(lambda: 1 / 0),
    lambda: atexit.register(time.sleep, 5),
    faulthandler.enable,
    lambda: socket.setdefaulttimeout(1e-6),
    lambda: multiprocessing.set_start_method("spawn", force=True),
    lambda: np.seterr(all="raise"),
    lambda: np.random.seed(1),
    lambda: random.seed(1),
    lambda: sys.settrace(lambda *_: 1 / 0),
    lambda: threading.settrace(lambda *_: 1 / 0),
    lambda: sys.setswitchinterval(1.0),
    lambda: logging.disable(logging.CRITICAL),
    lambda: os.sched_setaffinity(0, {0}),
    lambda: signal.alarm(1),
    lambda: signal.setitimer(signal.ITIMER_REAL, 0.2),
    unclosed,
    lambda: raising(Unprintable()),
    lambda: raising(Unpicklable()),
    lambda: raising(KeyboardInterrupt()),
    lambda: raising(MemoryError()),
    lambda: raising(GeneratorExit()),
    lambda: builtins.__dict__.update(kept=bytearray(2**27)),
]

def deep(n):
    return 0 if n == 0 else 1 + deep(n - 1)

def ordinary():
    with tempfile.NamedTemporaryFile("w+") as file:
        json.dump([random.random(), float(np.random.rand()), float(np.log(3)), math.sqrt(2)], file)
        file.flush()
        text, mode = open(file.name).read(), os.stat(file.name).st_mode
    said = subprocess.run(["echo", "said"], capture_output=True, text=True, check=True).stdout
    left, right = socket.socketpair()
    threading.Timer(0.02, lambda: right.send(b"1")).start()
    received = left.recv(1)
    warnings.warn("a warning")
    with multiprocessing.get_context("fork").Pool(1) as pool:
        squares = pool.map(math.sqrt, range(3))
    now = time.time() > 1e9 and os.getpid() != 1 and os.path.isdir(os.getcwd()) and len(os.environ["PATH"]) > 5
    divided, start = str(np.float64(1.0) / np.float64(0.0)), multiprocessing.get_start_method(allow_none=True)
    new = os.open(os.path.join(tempfile.gettempdir(), f"new-{os.getpid()}"), os.O_CREAT, 0o666)
    mask = os.fstat(new).st_mode
    os.unlink(os.readlink(f"/proc/self/fd/{new}"))
    os.close(new)
    kept = pickle.loads(pickle.dumps([text, said, received, squares, now, divided, start, mode, mask, deep(300)]))
    return zlib.crc32(repr([*kept, gc.isenabled(), locale.setlocale(locale.LC_ALL), sys.stdin is None]).encode())

def train(config):
    if config["x"] % 2:
        print("ordinary")
        tuner.report(loss=1.0, told=ordinary())
        tuner.report(loss=1.0)
    elif os.environ.get("MISBEHAVE"):
        KINDS[config["x"] // 2]()
    if config["x"] % 2 == 0:
        tuner.report(loss=2.0)
        tuner.report(loss=2.0)
"""
TORCH = """
import torch
import torch.nn.functional

KINDS = [
    lambda: torch.set_default_dtype(torch.float64),
    lambda: torch.set_default_device("meta"),
    lambda: torch.set_grad_enabled(False),
    lambda: torch.use_deterministic_algorithms(True),
    lambda: torch.set_num_threads(2),
    lambda: torch.manual_seed(1),
    lambda: torch.autograd.set_detect_anomaly(True),
    lambda: torch.set_flush_denormal(True),
    lambda: torch.nn.modules.module.register_module_forward_hook(lambda module, given, result: result * 2),
    lambda: setattr(torch, "rand", torch.zeros),
    lambda: setattr(torch.nn.functional, "cross_entropy", None),
    lambda: torch.set_float32_matmul_precision("medium"),
]

def ordinary():
    network, images = torch.nn.Linear(3, 2), torch.rand(4, 3)
    loss = torch.nn.functional.cross_entropy(network(images), torch.tensor([0, 1, 0, 1]))
    loss.backward()
    flags = torch.get_num_threads(), torch.is_anomaly_enabled(), torch.are_deterministic_algorithms_enabled()
    told = float(loss), network.weight.grad.tolist(), float(torch.tensor(1e-310, dtype=torch.float64) / 2)
    return zlib.crc32(repr([*told, *flags, torch.get_float32_matmul_precision()]).encode())
"""
SETTINGS = """
study = Study(
    "spoiling", trial=train, space={"x": randint(0, 2 * len(KINDS))}, metric="loss", mode="min", search=Random(),
    start_from=[{"x": x} for x in range(2 * len(KINDS))], scheduler=NoEarlyStopping(), warm_start=None,
    budget=Budget(trials=2 * len(KINDS), max_epochs=2), failures=Failures(lost=0, alike=None, out_of_memory=0),
    resources=Resources(cpus=1),
)
"""
