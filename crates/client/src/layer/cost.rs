//! What a request costs.

use crate::identity::Parts;

/// The cost of a request, in units: a number, or a closure of the request.
///
/// ```
/// use quorate_client::identity::Parts;
/// use quorate_client::layer::RequestCost;
/// let by_method = |request: &Parts| if request.method == "GET" { 1 } else { 5 };
/// let (request, ()) = http::Request::post("/").body(()).unwrap().into_parts();
/// assert_eq!((2.cost(&request), by_method.cost(&request)), (2, 5));
/// ```
pub trait RequestCost: Send + Sync + 'static {
    /// Units, 0 to 10^12. 0 is always granted, and only reports.
    fn cost(&self, request: &Parts) -> u64;
}

impl RequestCost for u64 {
    fn cost(&self, _: &Parts) -> u64 {
        *self
    }
}

impl<F: Fn(&Parts) -> u64 + Send + Sync + 'static> RequestCost for F {
    fn cost(&self, request: &Parts) -> u64 {
        self(request)
    }
}
