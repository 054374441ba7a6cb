import os
import tempfile

from hypothesis import settings

settings.register_profile("dev", max_examples=10, deadline=None)
settings.register_profile("ci", max_examples=12, deadline=None, derandomize=True)
settings.register_profile("nightly", max_examples=2000, deadline=None)
settings.load_profile(os.getenv("HYPOTHESIS_PROFILE", "dev"))

if capability := os.getenv("ATEN_CPU_CAPABILITY"):
    # torch.compile finds code in its cache that was made for another instruction set, and is wrong with it.
    folder = os.path.join(tempfile.gettempdir(), f"torchinductor-{capability}")
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", folder)
