//! Server and clients in one thread and virtual time, every run replayed from its seed.
