//! Compiles what can only be written in C, and sets how the library is linked; for this package and for
//! `azekura-recorder`, which is built of the same source.

use std::path::Path;

const FILES: [&str; 3] = ["variadic.c", "stdio/streams.c", "recording/stream.c"];
const RECORDER: &str = "azekura-recorder";

fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build
        // Without a table of jumps, a page that is touched for nothing else.
        .flags(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-fno-plt"])
        .warnings_into_errors(std::env::var_os("CI").is_some());
    build
}

fn main() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../preload/src");
    let files = FILES.map(|file| sources.join(file));
    for file in &files {
        println!("cargo:rerun-if-changed={}", file.display());
    }
    println!("cargo:rerun-if-changed=../preload/build.rs");
    println!("cargo:rustc-check-cfg=cfg(records_only)");
    compiler().files(files).compile("azekura_preload_c");
    if env!("CARGO_PKG_NAME") == RECORDER {
        println!("cargo:rustc-cfg=records_only");
        let unwinder = sources.join("unwinder.c");
        println!("cargo:rerun-if-changed={}", unwinder.display());
        compiler().file(unwinder).link_lib_modifier("+whole-archive").compile("azekura_unwinder");
        // One writable segment: two are two mappings, a change of protection and up to two pages more in
        // every program. The C compiler's own beginning and end do nothing for this library.
        for argument in ["-Wl,-z,norelro", "-nostartfiles"] {
            println!("cargo:rustc-cdylib-link-arg={argument}");
        }
    }
    // Our constructor runs before those of all other libraries, which may already use streams or
    // keep them, as that of C++ does.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
