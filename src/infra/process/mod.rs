//! Processes: the only place that starts or signals any.
