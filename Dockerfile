# One organization's gateway. A conversation's agent gets namespaces and a FUSE file system of its own, which the defaults
# of Docker forbid, so the container needs these flags:
#
#   docker run --init --device /dev/fuse --cap-add SYS_ADMIN \
#     --security-opt apparmor=unconfined --security-opt systempaths=unconfined \
#     -v edge-gateway:/data -p 127.0.0.1:8787:8787 -e ANTHROPIC_API_KEY edge-gateway
#
# (systempaths: a masked /proc makes the kernel refuse a new one in a user namespace.) Docker mounts cgroups read-only, so agents have
# neither a memory limit nor the network guard in there (`--cgroupns=host -v /sys/fs/cgroup:/sys/fs/cgroup` should give both; not tried), and
# EDGE_NETWORK_GUARD=require refuses to start without the guard.

FROM node:20-bookworm-slim AS build
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
RUN npx --yes bun@1.4.5 run build

# The same Debian: the runtime refers to its Python by path, and to its version.
FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends bash ca-certificates git procps python3 ripgrep \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /src/dist /opt/edge-gateway
ENV EDGE_HOST=0.0.0.0 EDGE_PORT=8787 EDGE_DATA_DIR=/data
VOLUME /data
EXPOSE 8787
STOPSIGNAL SIGTERM
ENTRYPOINT ["/opt/edge-gateway/edge-gateway"]
CMD ["serve"]
