//! Observers, findings and reports.
