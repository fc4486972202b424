//! Gives the shared library its soname: programs that were linked with it look for that name.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libazekura.so.0");
}
