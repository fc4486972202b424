"""The file system in memory that the guests start from: Debian's kernel, its NFS client and the programs
around it, straight out of Debian's packages, with what the guests run. Installs nothing on this machine.
"""

import re
import shutil
import subprocess
from pathlib import Path

GUEST = Path(__file__).parent / "guest"
# What `assemble` makes.
KERNEL, INITRAMFS = "vmlinuz", "initramfs.gz"

KERNEL_PACKAGE = "linux-image-cloud-amd64"
PROGRAMS = ["busybox-static", "nfs-common", "rpcbind", "tcc", "libtcc-dev"]
HEADERS = ["libc6-dev", "linux-libc-dev"]
# What the programs above are linked with, and libgcc for fsx.
LIBRARIES = [
    "libblkid1",
    "libc6",
    "libcap2",
    "libcom-err2",
    "libgcc-s1",
    "libgcrypt20",
    "libgpg-error0",
    "libgssapi-krb5-2",
    "libk5crypto3",
    "libkeyutils1",
    "libkrb5-3",
    "libkrb5support0",
    "liblz4-1",
    "liblzma5",
    "libmount1",
    "libnsl2",
    "libpcre2-8-0",
    "libselinux1",
    "libsystemd0",
    "libtirpc-common",
    "libtirpc3",
    "libwrap0",
    "libzstd1",
]
MODULES = ["virtio_pci", "virtio_net", "nfsv3"]
# Directories of the modules that these, and what they need, lie in.
MODULE_PLACES = ["drivers/virtio", "drivers/net", "net/core", "net/sunrpc", "fs"]
UNUSED = ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/lib/x86_64-linux-gnu/gconv"]
ETC = {
    "passwd": "root:x:0:0::/:/bin/sh\n_rpc:x:100:100::/:/bin/sh\nuser:x:1000:1000::/:/bin/sh\n",
    "group": "root:x:0:\n_rpc:x:100:\nuser:x:1000:\n",
    "nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "services": "sunrpc 111/tcp portmapper\nsunrpc 111/udp portmapper\nnfs 2049/tcp\n",
    "protocols": "ip 0 IP\ntcp 6 TCP\nudp 17 UDP\n",
    "hosts": "127.0.0.1 localhost\n",
}
EMPTY = ["proc", "sys", "dev", "tmp", "mnt", "run/rpcbind", "var/run"]
EMPTY += ["var/lib/nfs/sm", "var/lib/nfs/sm.bak"]


class MissingError(Exception):
    """Something that the guests need is not to be had here."""


def run(*command, cwd=None):
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise MissingError(f"{' '.join(map(str, command[:3]))} ...: {done.stderr.strip()[-600:]}")
    return done.stdout


def kernel_package():
    """The package that the kernel's name without a version stands for."""
    found = re.search(r"Depends: (linux-image-\S+)", run("apt-cache", "depends", KERNEL_PACKAGE))
    if found is None:
        raise MissingError(f"apt-cache depends {KERNEL_PACKAGE}: names no kernel")
    return found[1]


def unpack_packages(base):
    """Downloads the packages into `base` and unpacks them; the kernel's apart from the others."""
    kernel, root, packages = base / "kernel", base / "root", base / "packages"
    packages.mkdir()
    # apt downloads as a user of its own, who has to get there.
    base.chmod(0o755)
    packages.chmod(0o777)
    name = kernel_package()
    run("apt-get", "download", name, *PROGRAMS, *HEADERS, *LIBRARIES, cwd=packages)
    for package in packages.glob("*.deb"):
        run("dpkg", "-x", package, kernel if package.name.startswith(f"{name}_") else root)
    return kernel, root


def place_modules(kernel, root):
    """Those modules of the kernel's that guests could need, which are few of them all."""
    (modules,) = (kernel / "lib/modules").iterdir()
    there = root / "lib/modules" / modules.name
    there.mkdir(parents=True)
    for file in ("modules.order", "modules.builtin"):
        shutil.copy(modules / file, there)
    for place in MODULE_PLACES:
        if (modules / "kernel" / place).is_dir():
            shutil.copytree(modules / "kernel" / place, there / "kernel" / place)
    run(root / "bin/busybox", "depmod", "-b", root, modules.name)


def assemble(base, fsx, tree):
    """Makes the kernel and what it starts from in `base`. `fsx` is the program's path on this machine,
    `tree` that of an archive that the guests unpack on the mount."""
    kernel, root = unpack_packages(base)
    place_modules(kernel, root)
    for place in UNUSED:
        shutil.rmtree(root / place, ignore_errors=True)
    for place in EMPTY:
        (root / place).mkdir(parents=True, exist_ok=True)
    for name, text in ETC.items():
        (root / "etc" / name).write_text(text)
    (root / "etc/modules").write_text("\n".join(MODULES) + "\n")
    shutil.copytree(GUEST, root / "guest")
    for script in (root / "guest").glob("*.sh"):
        script.chmod(0o755)
    (root / "init").symlink_to("guest/init.sh")
    shutil.copy(fsx, root / "usr/bin/fsx")
    shutil.copy(tree, root / "guest/tree.tar")
    (image,) = (kernel / "boot").glob("vmlinuz-*")
    shutil.copy(image, base / KERNEL)
    busybox = root / "bin/busybox"
    pack = f"find . | {busybox} cpio -o -H newc 2>/dev/null | gzip -1 > {base / INITRAMFS}"
    run("sh", "-c", pack, cwd=root)
