import os
import signal
import tempfile

from hypothesis import settings

settings.register_profile("dev", max_examples=10, deadline=None)
settings.register_profile("ci", max_examples=12, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile(os.getenv("HYPOTHESIS_PROFILE", "dev"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that runs a job in the background lets it ignore interruptions, which some tests send.
    signal.signal(signal.SIGINT, signal.default_int_handler)

if capability := os.getenv("ATEN_CPU_CAPABILITY"):
    # torch.compile finds code in its cache that was made for another instruction set, and is wrong with it.
    folder = os.path.join(tempfile.gettempdir(), f"torchinductor-{capability}")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder)
