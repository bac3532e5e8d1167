//! Every pure part with its tests: `zig test tests.zig`.
test {
    _ = @import("manifest.zig");
    _ = @import("environment.zig");
}
