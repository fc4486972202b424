//! A trace of far reads, as it stands in a file, for those who read one.

/// Two requests of a window: the first, and one that is twice as large.
pub const TRACE_LINES: &str = r#"{"pid":7,"us":100,"object":"0a","policy":"sync-adaptive","read_offset":0,"read_bytes":4096,"offset":0,"bytes":65536,"ranges":1,"utilisation":null,"decision":"first","round_trip_us":50000,"bytes_per_second":1000000,"window_bytes":65536,"held_bytes":65536,"hit_bytes":0,"wasted_bytes":0}
{"pid":7,"us":200,"object":"0a","policy":"sync-adaptive","read_offset":65536,"read_bytes":4096,"offset":65536,"bytes":131072,"ranges":1,"utilisation":1.0,"decision":"grow","round_trip_us":50000,"bytes_per_second":2000000,"window_bytes":131072,"held_bytes":131072,"hit_bytes":65536,"wasted_bytes":0}
"#;
