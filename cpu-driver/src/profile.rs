//! Device profiles: what the driver reports and which PTX targets it accepts.
