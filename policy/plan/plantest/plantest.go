// Package plantest compiles pairs of bundles for tests of plans.
package plantest

import (
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"stele.dev/stele/policy"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/policy/plan"
	"stele.dev/stele/policy/probes"
)

var (
	mu       sync.Mutex
	compiled = map[string]*policy.Policy{}
)

// Compile compiles a CUE file with a bundle, and loads it, once per process and text.
func Compile(t testing.TB, bundle string) *policy.Policy {
	t.Helper()
	mu.Lock()
	defer mu.Unlock()
	if compiled[bundle] == nil {
		compiled[bundle] = compileNow(t, bundle)
	}
	return compiled[bundle]
}

func compileNow(t testing.TB, bundle string) *policy.Policy {
	t.Helper()
	source, err := bundles.ReadFS(fstest.MapFS{
		"bundle.cue":         {Data: []byte(bundle)},
		"cue.mod/module.cue": {Data: []byte("module: \"test.example\"\nlanguage: version: \"v0.17.0\"\n")},
	}, ".")
	if err != nil {
		t.Fatal(err)
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) > 0 {
		t.Fatal(diags)
	}
	return Load(t, compiled.Form)
}

// Load loads a form.
func Load(t testing.TB, f *policy.Form) *policy.Policy {
	t.Helper()
	if f.Version == 0 {
		f.Version = policy.FormVersion
	}
	encoded, _ := f.Encode()
	p, err := probes.Load(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Edit replaces pieces of a text: pairs of old and new.
func Edit(t testing.TB, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i+1 < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("the bundle has no %q", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// Sides compiles two bundles. An empty text is no policy.
func Sides(t testing.TB, from, to string) plan.Sides {
	t.Helper()
	s := plan.Sides{To: Compile(t, to)}
	if from != "" {
		s.From = Compile(t, from)
	}
	return s
}

// Databases is a bundle with a kind, roles, denies, admission rules, windows, flow and audit.
const Databases = `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "dev"
	teams: data: {contact: "#data", groups: ["data.corp.example"], namespaces: ["data-*", "shared"]}
	teams: delivery: {contact: "#delivery", groups: ["delivery.corp.example"], namespaces: ["ship-*"]}
	teams: platform: {contact: "#platform", groups: ["*"], namespaces: ["*"]}
	teams: data: kinds: "databases.data.corp.example": {
		names: {kind: "Database", plural: "databases"}
		scope: "Namespaced"
		storageVersion: "v1"
		versions: v1: #schema: {
			spec!: {
				tier:       *"dev" | "standard" | "critical"
				storageGiB: int & >=1 & <=8192 | *20
				replicas:   int & >=1 & <=7 | *1
				tenant?:    string
				owner?:     =~"^[a-z.]+@corp\\.example$"
			}
		}
	}
	teams: delivery: kinds: "pipelines.delivery.corp.example": {
		names: {kind: "Pipeline", plural: "pipelines"}
		scope: "Namespaced"
		storageVersion: "v1"
		versions: v1: #schema: spec!: {paused: bool | *false}
	}
	teams: data: rbac: {
		clusterRoles: {
			"data:viewer": {
				labels: "rbac.authorization.k8s.io/aggregate-to-view": "true"
				rules: read: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["get", "list", "watch"]}
			}
			"data:editor": rules: all: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["get", "list", "watch", "create", "update", "patch"]}
			"data:maker": rules: make: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["create", "update", "patch"]}
		}
		bindings: {
			developers: {clusterRole: "data:editor", subjects: [{group: "team-data"}], namespaces: ["data-*"]}
			"self-service-look": {clusterRole: "data:viewer", subjects: [{group: "developers"}], namespaces: ["shared"]}
			"self-service": {clusterRole: "data:maker", subjects: [{group: "developers"}], namespaces: ["shared"], when: "object.spec.tier == 'dev' && object.spec.storageGiB <= 50"}
		}
		denies: keep: {
			subjects: [{group: "team-data"}]
			rules: all: {apiGroups: ["data.corp.example"], resources: ["databases"], verbs: ["delete"]}
			unless: "'break-glass' in request.userInfo.groups"
			reason: "customers use databases"
		}
	}
	teams: data: admission: validate: {
		"storage-limit": {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			params: {maxGiB: 500, minReplicas: 1}
			validations: max: {expression: "object.spec.storageGiB <= params.maxGiB", message: "too large"}
			validations: critical: {expression: "object.spec.tier != 'critical' || object.spec.replicas >= params.minReplicas", message: "too few replicas"}
		}
		"own-tenant": {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			validations: same: {expression: "!has(object.spec.tenant) || 'tenant-' + object.spec.tenant in request.userInfo.groups", message: "use your own tenant"}
		}
		owned: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"]}
			validationActions: ["Warn", "Audit"]
			validations: owner: {expression: "has(object.spec.owner)", message: "say who owns it"}
		}
	}
	history: windows: secrets: "10m"
	history: retention: default: {history: "30d"}
	flow: priorityLevels: batch: {nominalConcurrencyShares: 10}
	audit: rules: all: {order: 10, level: "Metadata"}
}
`
