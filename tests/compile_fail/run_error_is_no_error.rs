//~ RunError: std::error::Error` is not satisfied

use ghostlight::prelude::*;

fn is_error<E: std::error::Error>() {}

fn main() {
    is_error::<RunError>();
}
