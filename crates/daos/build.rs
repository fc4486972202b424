//! Gives the library its own name, so that what is linked with it under the name of `libdfs.so` or
//! `libgurt.so` loads the one `libdaos.so` that holds the state of all three.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libdaos.so");
}
