package fromcue_test

import (
	"testing"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/jsonvalue"
	"stele.dev/stele/schemas/program"
)

// benchSchema has about forty fields: enumerations, regular expressions, bounds,
// lists of structs, maps, defaults.
const benchSchema = `
import (
	"strings"
	"list"
)

#Name: =~"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" & strings.MaxRunes(63)

#Port: {
	name!:    #Name
	port!:    int & >0 & <65536
	protocol: *"TCP" | "UDP" | "SCTP"
}

#Probe: {
	path:          *"/" | =~"^/"
	port!:         int & >0 & <65536
	periodSeconds: *10 | (int & >=1 & <=3600)
	failures:      *3 | (int & >=1)
}

#schema: {
	spec!: {
		replicas:  *1 | (int & >=0 & <=1000)
		image!:    =~"^[a-z0-9./:@_-]+$"
		color:     *"blue" | "red" | "green"
		tier!:     "web" | "api" | "batch"
		owner?:    =~"^[a-z]+@example\\.com$"
		paused:    *false | bool
		weight?:   number & >=0 & <=1
		command?: [...string] & list.MaxItems(16)
		ports: [...#Port] & list.MaxItems(8)
		env?: [...{name!: =~"^[A-Z_]+$", value: *"" | string, secret?: bool}]
		labels: [#Name]: string & strings.MaxRunes(63)
		liveness?:  #Probe
		readiness?: #Probe
		resources: {
			cpu:    *"100m" | =~"^[0-9]+m?$"
			memory: *"64Mi" | =~"^[0-9]+(Ki|Mi|Gi)$"
			limits?: {cpu?: string, memory?: string}
		}
		strategy: {
			type:           *"Rolling" | "Recreate"
			maxSurge:       *1 | int | =~"^[0-9]+%$"
			maxUnavailable: *0 | int | =~"^[0-9]+%$"
		}
		schedule?: null | {cron!: string, timezone: *"UTC" | string}
	}
	status?: {
		ready?:              bool
		observedGeneration?: int & >=0
		conditions?: [...{type!: string, status!: "True" | "False" | "Unknown", message?: string}]
	}
}
`

const benchObject = `{
  "apiVersion": "example.com/v1", "kind": "Widget",
  "metadata": {"name": "web-1", "namespace": "widgets-prod"},
  "spec": {
    "replicas": 3, "image": "registry.example.com/team/web:1.2.3", "color": "green", "tier": "web",
    "owner": "alice@example.com", "paused": false, "weight": 0.25,
    "command": ["/bin/web", "--listen", ":8080"],
    "ports": [
      {"name": "http", "port": 8080, "protocol": "TCP"},
      {"name": "metrics", "port": 9090, "protocol": "TCP"}
    ],
    "env": [
      {"name": "LOG_LEVEL", "value": "info"},
      {"name": "TOKEN", "value": "x", "secret": true}
    ],
    "labels": {"app": "web", "team": "widgets", "stage": "prod"},
    "liveness": {"path": "/healthz", "port": 8080, "periodSeconds": 5, "failures": 3},
    "readiness": {"path": "/readyz", "port": 8080, "periodSeconds": 5, "failures": 1},
    "resources": {"cpu": "250m", "memory": "128Mi", "limits": {"cpu": "1", "memory": "1Gi"}},
    "strategy": {"type": "Rolling", "maxSurge": "25%", "maxUnavailable": 0},
    "schedule": {"cron": "0 4 * * *", "timezone": "Europe/Berlin"}
  },
  "status": {
    "ready": true, "observedGeneration": 4,
    "conditions": [{"type": "Ready", "status": "True", "message": "all replicas are ready"}]
  }
}`

func benchSetup(b *testing.B) (*schemas.Node, map[string]any) {
	b.Helper()
	node := mustCompile(b, benchSchema)
	object, err := jsonvalue.Decode([]byte(benchObject))
	if err != nil {
		b.Fatal(err)
	}
	return node, object.(map[string]any)
}

func BenchmarkValidate(b *testing.B) {
	node, object := benchSetup(b)
	program, err := program.New(node)
	if err != nil {
		b.Fatal(err)
	}
	program.Prepare(object)
	if errs := program.Validate(object); errs != nil {
		b.Fatal(errs)
	}
	b.ReportAllocs()
	for b.Loop() {
		program.Validate(object)
	}
}

func BenchmarkPrepare(b *testing.B) {
	node, object := benchSetup(b)
	program, err := program.New(node)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("complete", func(b *testing.B) { // nothing to prune, nothing to fill in
		whole := jsonvalue.Clone(object).(map[string]any)
		program.Prepare(whole)
		b.ReportAllocs()
		for b.Loop() {
			program.Prepare(whole)
		}
	})
	b.Run("defaults", func(b *testing.B) { // seven defaults and a struct
		spec := jsonvalue.Clone(object).(map[string]any)["spec"].(map[string]any)
		absent := []string{"replicas", "color", "paused", "resources", "strategy", "labels", "ports"}
		b.ReportAllocs()
		for b.Loop() {
			for _, name := range absent {
				delete(spec, name)
			}
			program.Prepare(map[string]any{"spec": spec})
		}
	})
}

func BenchmarkNewProgram(b *testing.B) {
	node, _ := benchSetup(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := program.New(node); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFromCUE(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		mustCompile(b, benchSchema)
	}
}
