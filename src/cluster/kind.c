/* The API server's names of each kind. */
#include "cluster/object.h"

#define CORE      "/api/v1"
#define AGENTS    "/apis/agents.x-k8s.io/v1beta1"
#define EXTENSION "/apis/extensions.agents.x-k8s.io/v1beta1"
#define JUPYTER   "/apis/jupyter.org/v1"
#define NETWORK   "/apis/networking.k8s.io/v1"

#define KIND(name, plural, version, prefix) { name, plural, version, prefix, prefix "/" plural }

const struct kind_info kind_info[KINDS] = {
    [KIND_SANDBOX] = KIND("Sandbox", "sandboxes", "agents.x-k8s.io/v1beta1", AGENTS),
    [KIND_KERNEL] = KIND("Kernel", "kernels", "jupyter.org/v1", JUPYTER),
    [KIND_POD] = KIND("Pod", "pods", "v1", CORE),
    [KIND_SERVICE] = KIND("Service", "services", "v1", CORE),
    [KIND_CLAIM] = KIND("PersistentVolumeClaim", "persistentvolumeclaims", "v1", CORE),
    [KIND_TEMPLATE] = KIND("SandboxTemplate", "sandboxtemplates", "extensions.agents.x-k8s.io/v1beta1", EXTENSION),
    [KIND_POOL] = KIND("SandboxWarmPool", "sandboxwarmpools", "extensions.agents.x-k8s.io/v1beta1", EXTENSION),
    [KIND_BOXCLAIM] = KIND("SandboxClaim", "sandboxclaims", "extensions.agents.x-k8s.io/v1beta1", EXTENSION),
    [KIND_NETPOLICY] = KIND("NetworkPolicy", "networkpolicies", "networking.k8s.io/v1", NETWORK),
};
