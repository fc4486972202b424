import sys, time
sys.path.insert(0, "/work/wt/starts/tests")
import os
import pytest
from pools import BINARY, LAB, wait_until
from test_netlab import PAIR, Lab
RTT = float(os.environ.get("RTT", "0.1"))
THREE = os.environ.get("ENGINES", "1")
def test_table(world, capsys):
    lab = Lab(world, PAIR)
    engines = []
    for n in range(int(THREE)):
        e = world.start(*("netlab","exec","--lab",lab.name,"far","--",BINARY,"serve"), *("--dir", world.storage/f"engine{n}", "--listen", f"0.0.0.0:{7070+n}"), program=LAB)
        wait_until(lambda: "is ready" in e.log.read_text(), "ready")
        engines += ["--engine", f"far:{7070+n}"]
    lab.exec("near", BINARY, "pool", "create", "far", *engines)
    lab.exec("near", BINARY, "fs", "put", "/etc/hostname", "far:/hello")
    lab.tell("set", "wan", f"delay={RTT/2*1000:.0f}ms")
    pre = ("near", BINARY, "run", "--pool", "far", "--via", "preload", "--")
    done = lab.exec(*pre, sys.executable, "/tmp/starts/calls.py", "/azekura", str(RTT), check=False)
    with capsys.disabled():
        print("\n" + done.stdout + done.stderr[-2000:])
        if os.environ.get("START"):
            for i in range(3):
                t = time.monotonic(); r = lab.exec(*pre, "true"); a = time.monotonic() - t
                t = time.monotonic(); r = lab.exec(*pre, "cat", "/azekura/hello"); b = time.monotonic() - t
                t = time.monotonic(); r = lab.exec(*pre, "sh", "-c", "cat /azekura/hello; cat /azekura/hello; true"); c = time.monotonic() - t
                print("true", a / RTT, "cat", b / RTT, "cat cat", c / RTT)
