//! Gives the shared object the name that CUDA programs look for. `nodelete`
//! because some clients open and close the library to probe for it.
fn main() {
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libcuda.so");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
