//! Every limit of confined-exec in one place. Sizes are bytes unless the name says otherwise.

/// Host user ids below this belong to the system: a holder is never mapped to one of them, above all not to 0.
pub const host_uid_min: u32 = 1000;
pub const host_uid_max: u32 = 4_000_000_000;
/// Where the machine begins to count its holders' users (`machine/holders/uids.ts`): `check` tries to map this one.
pub const host_uid_first: u32 = 101_000;
/// User and group id of Hermes and its tools inside a holder.
pub const inner_uid: u32 = 1000;

pub const manifest_bytes = 16 * 1024;
pub const manifest_binds = 64;
pub const manifest_args = 64;
pub const manifest_git_places = 4;
pub const path_bytes = 1024;
/// A unix socket path, without its ending zero.
pub const socket_path_bytes = 107;
pub const token_bytes = 64;
pub const manifest_cgroups = 4;

/// Ports of this host that one `guard` can refuse.
pub const guard_ports = 64;

pub const environment_bytes = 128 * 1024;
pub const environment_entries = 512;
pub const ca_bundle_bytes = 4 * 1024 * 1024;
pub const start_script_bytes = 1024 * 1024;

/// Everything mounted below a holder's root: manifest binds, system directories, `/etc` files, device nodes.
pub const captured_mounts = 160;
pub const root_tmpfs = "mode=0755,size=16m,nr_inodes=4096";
pub const tmp_tmpfs = "mode=1777,size=512m,nr_inodes=262144";
pub const shm_tmpfs = "mode=1777,size=64m,nr_inodes=4096";

/// The largest FUSE payload (`max_write`) that the relay carries, and what its headers add.
pub const fuse_payload = 1024 * 1024;
pub const fuse_message = fuse_payload + 64 * 1024;
/// Invalidations waiting for a busy kernel. More than this is an error, never a stall of the replies behind them.
pub const notification_queue = 256 * 1024;
pub const notification_message = 4096;

/// How long the machine may take to accept a connection and to say `go`, in milliseconds.
pub const machine_answer_ms = 60_000;

/// How long dying processes may wait for the machine's answers before their file system is taken away, in milliseconds.
pub const end_ms = 5_000;

pub const holder_files = 4096;
pub const holder_processes = 2048;
pub const machine_files = 65536;

/// Programs that one `shell` start may try.
pub const shell_candidates = 256;
/// Names in the root directory that a tool's Landlock domain may list.
pub const root_names = 128;

/// Of one call of `git`. What is longer goes to a native git, or is refused.
pub const git_path_bytes = 4096;
pub const git_words_bytes = 128 * 1024;
pub const git_words = 16 * 1024;
pub const git_variables_bytes = 64 * 1024;
pub const git_variables = 1024;
/// The user's own configuration file.
pub const git_config_bytes = 64 * 1024;
/// A frame of the machine's, or of standard input, without its header.
pub const git_frame_bytes = 64 * 1024;
/// What a pipe that has room takes without a wait (PIPE_BUF).
pub const git_write_bytes = 4096;
/// Variables of an environment that the client changes for the native git.
pub const native_variables = 4096;
/// How long the machine may take to accept a call, in seconds.
pub const git_connect_seconds = 30;
/// How long an interrupted call may take to come to its end, in milliseconds.
pub const git_abort_ms = 5_000;
