# The images of the tests, for whoever builds them: sourced by build-images and kind-up, which bring `build`, called as
# build NAME DOCKERFILE CONTEXT ARGUMENTS..., and PREFIX, which stands before the name of an image that another builds on.
VERSION=$(sed -n 's/^version = "\(.*\)"$/\1/p' pyproject.toml)
# "next" is the same image under another name: what an upgrade is about is the release, not what stands in a layer.
IMAGES=("agentrun-operator:$VERSION" agentrun-operator:next "agentrun-worker:$VERSION" greeting-worker:1 node-tools:1 node-ledger:1)

build_all() {
  local on=(--build-arg "WORKER=${PREFIX}agentrun-worker:$VERSION")
  build "agentrun-operator:$VERSION" operator/Dockerfile .
  build "agentrun-worker:$VERSION" worker_image/Dockerfile .
  build greeting-worker:1 examples/own-worker-image/Dockerfile examples/own-worker-image "${on[@]}"
  build node-tools:1 tests/node/tools/Dockerfile . "${on[@]}"
  build node-ledger:1 tests/node/ledger/Dockerfile tests/node/ledger
}
