package apiserver

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
)

const (
	pods       = "Pods, which are not served"
	nodes      = "nodes, which are not served"
	services   = "Services, which are not served"
	aggregated = "aggregated API servers, which there are none"
)

// withoutEffect are the flags about what is not served. They are accepted, because programs that start kube-apiserver give them always.
var withoutEffect = []*ignored{
	{name: "allow-privileged", concerns: pods, boolean: true, check: boolean},
	{name: "default-not-ready-toleration-seconds", concerns: pods, check: number},
	{name: "default-unreachable-toleration-seconds", concerns: pods, check: number},
	{name: "kubelet-certificate-authority", concerns: nodes},
	{name: "kubelet-client-certificate", concerns: nodes},
	{name: "kubelet-client-key", concerns: nodes},
	{name: "kubelet-preferred-address-types", concerns: nodes},
	{name: "kubelet-timeout", concerns: nodes},
	{name: "max-connection-bytes-per-sec", concerns: pods, check: number},
	{name: "apiserver-count", concerns: services, check: number},
	{name: "endpoint-reconciler-type", concerns: services},
	{name: "kubernetes-service-node-port", concerns: services, check: number},
	{name: "service-cluster-ip-range", concerns: services, check: networks},
	{name: "service-node-port-range", concerns: services},
	{name: "enable-aggregator-routing", concerns: aggregated, boolean: true, check: boolean},
	{name: "proxy-client-cert-file", concerns: aggregated},
	{name: "proxy-client-key-file", concerns: aggregated},
}

func boolean(text string) error {
	_, err := strconv.ParseBool(text)
	return err
}

func number(text string) error {
	_, err := strconv.ParseInt(text, 10, 64)
	return err
}

// networks checks one network, or one of each family.
func networks(text string) error {
	parts := strings.Split(text, ",")
	if len(parts) > 2 {
		return fmt.Errorf("want at most two networks")
	}
	for _, part := range parts {
		if _, _, err := net.ParseCIDR(strings.TrimSpace(part)); err != nil {
			return err
		}
	}
	return nil
}

const (
	inBundle  = "the policy says it; give --policy, and see docs/BUNDLE.md"
	batches   = "audit events are sent as they come; see --audit-webhook-batch-max-size and --audit-webhook-batch-max-wait"
	audited   = "audit events are written before the answer, and never dropped or cut"
	noCache   = "there is no cache of watches with a size: each kind is in memory, see --memory"
	etcdOwn   = "the log asks etcd when it has to"
	noPeers   = "replicas find each other in the log"
	noEgress  = "connections are made directly"
	emulation = "each program serves one version of Kubernetes"
	timeouts  = "each sort of request has a limit of its own"
)

// refused are the flags of kube-apiserver that say something that stele does otherwise, by name, and what to do.
var refused = map[string]string{
	"admission-control-config-file":               inBundle,
	"aggregator-reject-forwarding-redirect":       "there are no aggregated API servers",
	"allow-metric-labels":                         "labels of metrics are bounded by the program",
	"allow-metric-labels-manifest":                "labels of metrics are bounded by the program",
	"audit-log-batch-buffer-size":                 audited,
	"audit-log-batch-max-size":                    audited,
	"audit-log-batch-max-wait":                    audited,
	"audit-log-batch-throttle-burst":              audited,
	"audit-log-batch-throttle-enable":             audited,
	"audit-log-batch-throttle-qps":                audited,
	"audit-log-mode":                              audited,
	"audit-log-truncate-enabled":                  audited,
	"audit-log-truncate-max-batch-size":           audited,
	"audit-log-truncate-max-event-size":           audited,
	"audit-policy-file":                           "the field audit of a bundle has the rules; `stele policy import` makes them of a file",
	"audit-webhook-batch-buffer-size":             batches,
	"audit-webhook-batch-throttle-burst":          batches,
	"audit-webhook-batch-throttle-enable":         batches,
	"audit-webhook-batch-throttle-qps":            batches,
	"audit-webhook-mode":                          batches,
	"audit-webhook-truncate-enabled":              batches,
	"audit-webhook-truncate-max-batch-size":       batches,
	"audit-webhook-truncate-max-event-size":       batches,
	"coordinated-leadership-lease-duration":       "there is no leader that the server chooses for others",
	"coordinated-leadership-renew-deadline":       "there is no leader that the server chooses for others",
	"coordinated-leadership-retry-period":         "there is no leader that the server chooses for others",
	"debug-socket-path":                           "see --unix-socket",
	"default-watch-cache-size":                    noCache,
	"delete-collection-workers":                   "each collection is deleted by one worker",
	"disable-http2-serving":                       "HTTP/2 is always served",
	"disabled-metrics":                            "all metrics are shown",
	"egress-selector-config-file":                 noEgress,
	"emulated-version":                            emulation,
	"emulation-forward-compatible":                emulation,
	"enable-logs-handler":                         "logs of the machine are not served",
	"etcd-compaction-interval":                    "the log is never compacted, see --log-window",
	"etcd-count-metric-poll-period":               etcdOwn,
	"etcd-db-metric-poll-interval":                etcdOwn,
	"etcd-healthcheck-timeout":                    etcdOwn,
	"etcd-readycheck-timeout":                     etcdOwn,
	"etcd-servers-overrides":                      "there is one log",
	"http2-max-streams-per-connection":            "see the flags for limits of connections",
	"lease-reuse-duration-seconds":                etcdOwn,
	"livez-grace-period":                          "a server that starts is alive",
	"log-flush-frequency":                         "messages are written at once",
	"log-json-info-buffer-size":                   "messages are written at once",
	"log-json-split-stream":                       "messages are written to standard error",
	"log-text-info-buffer-size":                   "messages are written at once",
	"log-text-split-stream":                       "messages are written to standard error",
	"min-compatibility-version":                   emulation,
	"min-request-timeout":                         timeouts,
	"peer-advertise-ip":                           noPeers,
	"peer-advertise-port":                         noPeers,
	"peer-ca-file":                                noPeers,
	"permit-address-sharing":                      "an address is of one process",
	"permit-port-sharing":                         "a port is of one process",
	"request-timeout":                             timeouts,
	"runtime-config-emulation-forward-compatible": emulation,
	"service-account-extend-token-expiration":     "tokens expire when they say",
	"service-account-signing-endpoint":            "give --service-account-signing-key-file",
	"show-hidden-metrics-for-version":             "no metrics are hidden",
	"shutdown-send-retry-after":                   "see --shutdown-delay-duration",
	"shutdown-watch-termination-grace-period":     "see --shutdown-delay-duration",
	"storage-initialization-timeout":              "a server without an etcd waits for it",
	"storage-media-type":                          "events have a form of their own",
	"strict-transport-security-directives":        "programs, and no pages, are served",
	"tls-curve-preferences":                       "those of Go are used",
	"vmodule":                                     "see --v",
	"watch-cache-sizes":                           noCache,
}

// checkModes returns an error for authorizers other than RBAC and Node, and if RBAC is missing.
func checkModes(modes []string) error {
	for _, m := range modes {
		switch m {
		case "RBAC", "Node": // there are no nodes
		case "ABAC", "Webhook":
			return fmt.Errorf("--authorization-mode %s: the policy says whom it asks; give --policy with a bundle whose field authorizers has %q", m, strings.ToLower(m))
		case "AlwaysAllow", "AlwaysDeny":
			return fmt.Errorf("--authorization-mode %s: there is no such authorizer; RBAC is the default", m)
		default:
			return fmt.Errorf("--authorization-mode %s: want RBAC or Node", m)
		}
	}
	if !slices.Contains(modes, "RBAC") {
		return fmt.Errorf("--authorization-mode %s: RBAC is always on, and must be named", strings.Join(modes, ","))
	}
	return nil
}

// alwaysOn are the admission plugins of kube-apiserver that stele has, or that its own do more than.
var alwaysOn = []string{
	"MutatingAdmissionPolicy", "MutatingAdmissionWebhook", "NamespaceLifecycle", "ResourceQuota", "ValidatingAdmissionPolicy", "ValidatingAdmissionWebhook",
}

// onNothing are the admission plugins about kinds that are not served, and those that admit all.
var onNothing = []string{
	"AlwaysAdmit", "AlwaysPullImages", "CertificateApproval", "CertificateSigning", "CertificateSubjectRestriction", "ClusterTrustBundleAttest",
	"DefaultIngressClass", "DefaultStorageClass", "DefaultTolerationSeconds", "DenyServiceExternalIPs", "ExtendedResourceToleration", "LimitPodHardAntiAffinityTopology",
	"LimitRanger", "NamespaceExists", "NodeDeclaredFeatureValidator", "NodeRestriction", "PersistentVolumeClaimResize", "PodNodeSelector", "PodSecurity", "PodTolerationRestriction",
	"PodTopologyLabels", "Priority", "RuntimeClass", "ServiceAccount", "StorageObjectInUseProtection", "TaintNodesByCondition",
}

// notThere are the admission plugins that would have an effect, and are not there.
var notThere = []string{"AlwaysDeny", "EventRateLimit", "ImagePolicyWebhook", "NamespaceAutoProvision", "OwnerReferencesPermissionEnforcement"}

// checkPlugins returns an error for admission plugins that are to be on and are not there, or to be off and are always on.
func checkPlugins(enabled, disabled []string) error {
	for _, name := range slices.Concat(enabled, disabled) {
		if !slices.Contains(slices.Concat(alwaysOn, onNothing, notThere), name) {
			return fmt.Errorf("there is no admission plugin %q", name)
		}
		if slices.Contains(enabled, name) && slices.Contains(disabled, name) {
			return fmt.Errorf("admission plugin %s is both in --enable-admission-plugins and in --disable-admission-plugins", name)
		}
	}
	for _, name := range enabled {
		if slices.Contains(notThere, name) {
			return fmt.Errorf("--enable-admission-plugins %s: stele does not have it; the policy can have rules for admission, see docs/ADMISSION.md", name)
		}
	}
	for _, name := range disabled {
		if slices.Contains(alwaysOn, name) {
			return fmt.Errorf("--disable-admission-plugins %s: it is always on", name)
		}
	}
	return nil
}
