//! Compiles what can only be written in C, and sets how the library is linked.

const FILES: [&str; 3] = ["src/variadic.c", "src/stdio/streams.c", "src/recording/stream.c"];

fn main() {
    for file in FILES {
        println!("cargo:rerun-if-changed={file}");
    }
    println!("cargo:rerun-if-changed=build.rs");
    cc::Build::new()
        .files(FILES)
        .flags(["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic"])
        .warnings_into_errors(std::env::var_os("CI").is_some())
        .compile("azekura_preload_c");
    // Our constructor runs before those of all other libraries, which may already use streams or
    // keep them, as that of C++ does.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
}
