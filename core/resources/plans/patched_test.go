package plans_test

import (
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
)

// Patches and applied configurations that were refused are applied again to the object that there was.
func TestRefusedPatchesAreDecidedAgain(t *testing.T) {
	s := start(t)
	s.Activate(t, audited(t))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for _, name := range []string{"db-1", "db-2"} {
		s.must(t, "dana", "APPLY", databases+"/"+name+"?fieldManager=dana", database(name, `,"storageGiB":100`))
	}
	s.refused(t, 403, "olga", "PATCH", databases+"/db-1", `{"spec":{"storageGiB":200}}`)
	s.refused(t, 403, "olga", "PATCH", databases+"/db-1", `{"spec":{"storageGiB":600}}`)                                        // the rule refuses it, too
	s.refused(t, 403, "olga", "PATCH", databases+"/db-1", `{"spec":{"tier":"none"}}`)                                           // the schema refuses it, too
	s.refused(t, 403, "olga", "PATCH", databases+"/db-1", `{"spec":`)                                                           // it is no patch: as it may have secrets, its hash is recorded
	s.refused(t, 403, "olga", "APPLY", databases+"/db-1?fieldManager=olga", database("db-1", `,"storageGiB":100,"tier":"dev"`)) // no conflict
	s.refused(t, 403, "olga", "APPLY", databases+"/db-3?fieldManager=olga", database("db-3", ""))                               // a create
	s.refused(t, 403, "olga", "PATCH", databases+"/db-4", `{"spec":{"storageGiB":200}}`)                                        // there is none
	s.refused(t, 403, "olga", "PATCH", databases+"/db-2/status", `{"status":{"phase":"ok"},"spec":{"x":"y"}}`)                  // the status only
	s.must(t, "dana", "DELETE", databases+"/db-1", "")
	s.must(t, "dana", "PATCH", databases+"/db-2", `{"spec":{"storageGiB":300}}`)
	s.refused(t, 403, "olga", "APPLY", databases+"/db-2?fieldManager=olga", database("db-2", `,"storageGiB":400`)) // a conflict

	if p := s.plan(t, "admin", audited(t), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 || p.Replay.Refusals != 9 {
		t.Errorf("the same policy: %s", show(p))
	}
	p := s.plan(t, "admin", audited(t, `resources: ["databases"], verbs: ["get", "list"]}`, `resources: ["databases", "databases/status"], verbs: ["get", "list", "patch"]}`), week)
	if f := flip(t, p, "olga", "patch", "authorization"); f.Refused || f.Count != 2 {
		t.Errorf("%s", show(p))
	}
	undecided := []string{
		"1: it is a patch that cannot be applied again", "1: its body has secrets, which are recorded as hashes", "1: its object was not there, or is not kept any more",
	}
	if len(p.Replay.Flips) != 2 || !slices.Equal(p.Replay.Why, undecided) {
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", audited(t, `resources: ["databases"], verbs: ["get", "list"]}`, `resources: ["databases"], verbs: ["*"]}`), week)
	if f := flip(t, p, "olga", "patch", "authorization"); f.Count != 3 {
		t.Errorf("with the verb create: %s", show(p))
	}
}

// Conditions and rules see the Scale of an object, in writes as in refusals.
func TestWritesOfScalesAreDecidedAgain(t *testing.T) {
	scaled := audited(t, "phase?: string", "phase?: string, replicas?: int", "subresources: status: {}",
		`subresources: {status: {}, scale: {specReplicasPath: ".spec.storageGiB", statusReplicasPath: ".status.replicas"}}`,
		`resources: ["databases", "databases/status"]`, `resources: ["databases", "databases/status", "databases/scale"]`,
		"admission: validate: limit: {", `admission: validate: few: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases/scale"]}
			validations: few: {expression: "object.spec.replicas <= 300", message: "too many"}
		}
		admission: validate: limit: {`)
	s := start(t)
	s.Activate(t, scaled)
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases, database("db-1", ""))
	scale := func(replicas string) string {
		return `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"db-1","namespace":"shop"},"spec":{"replicas":` + replicas + `}}`
	}
	s.must(t, "dana", "PUT", databases+"/db-1/scale", scale("50"))
	s.must(t, "dana", "PATCH", databases+"/db-1/scale", `{"spec":{"replicas":150}}`)
	s.must(t, "dana", "PATCH", databases+"/db-1/scale", `{"spec":{"replicas":250}}`)
	s.refused(t, 422, "dana", "PUT", databases+"/db-1/scale", scale("350"))
	s.refused(t, 422, "dana", "PUT", databases+"/db-1/scale", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"db-1","namespace":"shop"}}`) // 0
	s.refused(t, 422, "dana", "PUT", databases+"/db-1/scale", scale("9000"))                                                                                  // the schema of the kind refuses it, too

	if p := s.plan(t, "admin", scaled, week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 || p.Replay.Refusals != 3 {
		t.Errorf("the same policy: %s", show(p))
	}
	p := s.plan(t, "admin", strings.Replace(scaled, "replicas <= 300", "replicas <= 200", 1), week)
	if f := onlyFlip(t, p, true); f.Verb != "patch" || f.Count != 1 || f.Rule != "data/validate/few/few" || f.Resource != "databases.data.corp.example/scale" || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", strings.Replace(scaled, "replicas <= 300", "replicas <= 10000", 1), week)
	if f := onlyFlip(t, p, false); f.Verb != "update" || f.Count != 1 || f.Rule != "data/validate/few/few" || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
}

// Rules see the options of recorded requests.
func TestOptionsOfRecordedRequests(t *testing.T) {
	by := func(managers string) string {
		return audited(t, "admission: validate: limit: {", `admission: validate: manager: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["CREATE", "UPDATE"]}
			validations: known: {expression: "request.options.fieldManager in [`+managers+`] && request.options.kind == (oldObject == null ? 'CreateOptions' : 'UpdateOptions')", message: "unknown"}
		}
		admission: validate: limit: {`)
	}
	s := start(t)
	s.Activate(t, by("'a', 'b'"))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases+"?fieldManager=a", database("db-1", ""))
	s.must(t, "dana", "PATCH", databases+"/db-1?fieldManager=b", `{"spec":{"tier":"standard"}}`)
	s.refused(t, 422, "dana", "PATCH", databases+"/db-1?fieldManager=c", `{"spec":{"tier":"dev"}}`)
	if p := s.plan(t, "admin", by("'b', 'a'"), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 || p.Replay.Refusals != 1 {
		t.Errorf("the same managers: %s", show(p))
	}
	p := s.plan(t, "admin", by("'b', 'c'"), week)
	if f := flip(t, p, "dana", "create", "validation"); !f.Refused || f.Count != 1 {
		t.Errorf("%s", show(p))
	}
	if f := flip(t, p, "dana", "patch", "validation"); f.Refused || f.Count != 1 || len(p.Replay.Flips) != 2 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
}

// A request that is refused in authorization has no field manager in its record: it is that of the query, or of the user agent.
func TestRefusedAppliesHaveTheirManager(t *testing.T) {
	s := start(t)
	s.Activate(t, audited(t))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "APPLY", databases+"/db-1?fieldManager=dana", database("db-1", `,"storageGiB":100,"tier":"critical"`))
	without := audited(t, `bindings: dana: {clusterRole: "databases", subjects: [{user: "dana"}], namespaces: ["*"]}`, "")
	s.Activate(t, without)
	s.refused(t, 403, "dana", "APPLY", databases+"/db-1?fieldManager=dana", database("db-1", `,"storageGiB":200`))
	rule := func(is string) string {
		return audited(t, "admission: validate: limit: {", `admission: validate: manager: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["UPDATE"]}
			validations: known: {expression: "object.spec.storageGiB == 200 && object.spec.tier == 'dev' && `+is+`", message: "unknown"}
		}
		admission: validate: limit: {`)
	}
	p := s.plan(t, "admin", rule("request.options.fieldManager == 'dana'"), week)
	if f := onlyFlip(t, p, false); f.Verb != "patch" || f.Count != 1 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	if p = s.plan(t, "admin", rule("request.options.fieldManager != 'dana'"), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
}

// Refusals about namespaces by their names are about objects that are in no namespace.
func TestRefusedWritesOfNamespacesAreDecidedAgain(t *testing.T) {
	s := start(t)
	s.Activate(t, audited(t))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	const shop = "/api/v1/namespaces/shop"
	text := `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop","labels":{"a":"b"}}}`
	s.refused(t, 403, "olga", "APPLY", shop+"?fieldManager=olga", text)
	s.refused(t, 403, "olga", "PATCH", shop, labelPatch)
	s.refused(t, 403, "olga", "DELETE", shop, "")
	grant := func(verbs string) string {
		return audited(t, "clusterRoles: looks: rules:", `clusterRoles: spaces: rules: r: {apiGroups: [""], resources: ["namespaces"], verbs: [`+verbs+`]}
			bindings: spaces: {clusterRole: "spaces", subjects: [{user: "olga"}], namespaces: ["*"]}
			clusterRoles: looks: rules:`)
	}
	p := s.plan(t, "admin", grant(`"patch"`), week)
	if f := onlyFlip(t, p, false); f.Verb != "patch" || f.Count != 2 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", grant(`"delete"`), week)
	if f := onlyFlip(t, p, false); f.Verb != "delete" || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	s.must(t, "admin", "PUT", shop+"/finalize", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"},"spec":{"finalizers":["a.example/b"]}}`)
	ruled := audited(t, "admission: validate: limit: {", `admission: validate: kept: {
			match: {apiGroups: [""], resources: ["namespaces/finalize"]}
			validations: few: {expression: "object.spec.finalizers.size() < 1", message: "too many"}
		}
		admission: validate: limit: {`)
	p = s.plan(t, "admin", ruled, week)
	if f := onlyFlip(t, p, true); f.Verb != "update" || f.Resource != "namespaces/finalize" || f.Stage != "validation" || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
}

// The options of a delete are in its body, which is recorded if the delete was refused.
func TestOptionsOfRecordedDeletes(t *testing.T) {
	s := start(t)
	s.Activate(t, audited(t))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for _, name := range []string{"db-1", "db-2"} {
		s.must(t, "dana", "POST", databases, database(name, ""))
	}
	s.must(t, "dana", "DELETE", databases+"/db-1", "")
	s.refused(t, 403, "olga", "DELETE", databases+"/db-2", `{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Orphan"}`)
	s.refused(t, 403, "olga", "DELETE", databases+"/db-2?propagationPolicy=Background", "")
	ruled := audited(t, `resources: ["databases"], verbs: ["get", "list"]}`, `resources: ["databases"], verbs: ["get", "list", "delete"]}`,
		"admission: validate: limit: {", `admission: validate: orphans: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["DELETE"]}
			validations: none: {expression: "request.options.propagationPolicy != 'Orphan'", message: "it would leave orphans"}
		}
		admission: validate: limit: {`)
	p := s.plan(t, "admin", ruled, week)
	if f := onlyFlip(t, p, false); f.Verb != "delete" || f.User != "olga" || f.Count != 1 || !slices.Equal(p.Replay.Why, []string{"1: a rule reads the options of a delete whose body was not recorded"}) {
		t.Errorf("%s", show(p))
	}
}

// A patch is of the type of its Content-Type, whatever its parameters are, and one of another type is none.
func TestRefusedPatchesAreOfTheirType(t *testing.T) {
	s := start(t)
	s.Activate(t, audited(t))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases, database("db-1", ""))
	for mediaType, body := range map[string]string{
		"application/json-patch+json; charset=utf-8":  `[{"op":"replace","path":"/spec/storageGiB","value":30}]`,
		"application/merge-patch+json; charset=utf-8": `{"spec":{"storageGiB":30}}`,
		"application/json":                            `{"spec":{"storageGiB":30}}`,
	} {
		err := s.client(t, "olga", "system:authenticated").Patch(types.MergePatchType).RequestURI(databases+"/db-1").SetHeader("Content-Type", mediaType).Body([]byte(body)).Do(t.Context()).Error()
		if !apierrors.IsForbidden(err) {
			t.Fatalf("%s: %v", mediaType, err)
		}
	}
	p := s.plan(t, "admin", audited(t, `resources: ["databases"], verbs: ["get", "list"]}`, `resources: ["databases"], verbs: ["get", "list", "patch"]}`), week)
	if f := onlyFlip(t, p, false); f.Count != 2 || !slices.Equal(p.Replay.Why, []string{"1: it is a patch that cannot be applied again"}) {
		t.Errorf("%s", show(p))
	}
}

// A patch of a Scale that was refused is applied again to the Scale that there was, and rules of mutate see Scales.
func TestRefusedPatchesOfScalesAreDecidedAgain(t *testing.T) {
	scaled := func(pairs ...string) string {
		return audited(t, append([]string{"phase?: string", "phase?: string, replicas?: int", "subresources: status: {}",
			`subresources: {status: {}, scale: {specReplicasPath: ".spec.storageGiB", statusReplicasPath: ".status.replicas"}}`,
			`resources: ["databases", "databases/status"]`, `resources: ["databases", "databases/status", "databases/scale"]`,
			"admission: validate: limit: {", `admission: validate: few: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases/scale"]}
			validations: few: {expression: "object.spec.replicas <= 300", message: "too many"}
		}
		admission: validate: limit: {`}, pairs...)...)
	}
	const lowered = `admission: mutate: lower: {order: 1, match: {apiGroups: ["data.corp.example"], resources: ["databases/scale"]}, mutations: s: {
			patchType: "ApplyConfiguration", expression: "Object{spec: Object.spec{replicas: object.spec.replicas - 60}}"}}
		rbac: {`
	s := start(t)
	s.Activate(t, scaled())
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	s.must(t, "dana", "POST", databases, database("db-1", ""))
	s.must(t, "dana", "PATCH", databases+"/db-1/scale", `{"spec":{"replicas":250}}`)
	s.refused(t, 422, "dana", "PATCH", databases+"/db-1/scale", `{"spec":{"replicas":350}}`)
	s.refused(t, 403, "olga", "PATCH", databases+"/db-1/scale", `{"spec":{"replicas":280}}`)
	s.refused(t, 403, "olga", "PATCH", databases+"/db-1/scale", `{"spec":{"replicas":900}}`) // the rule refuses it, too
	s.refused(t, 403, "olga", "APPLY", databases+"/db-1/scale?fieldManager=olga&force=true", `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"db-1","namespace":"shop"},"spec":{"replicas":290}}`)

	if p := s.plan(t, "admin", scaled(), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 || p.Replay.Refusals != 4 {
		t.Errorf("the same policy: %s", show(p))
	}
	p := s.plan(t, "admin", scaled(`resources: ["databases"], verbs: ["get", "list"]}`, `resources: ["databases", "databases/scale"], verbs: ["get", "list", "patch"]}`), week)
	if f := onlyFlip(t, p, false); f.User != "olga" || f.Count != 2 || f.Resource != "databases.data.corp.example/scale" || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	p = s.plan(t, "admin", scaled("rbac: {", lowered), week)
	if f := onlyFlip(t, p, false); f.User != "dana" || f.Stage != "validation" || f.Count != 1 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	if got := altered(p); got != "1 of 1: patch databases.data.corp.example/scale spec.replicas by data/mutate/lower/s\n" {
		t.Errorf("got %s", got)
	}
}

// A delete of a collection that was refused is decided again object by object, with the objects that it would have deleted then.
func TestRefusedDeletesOfCollectionsAreDecidedAgain(t *testing.T) {
	s := start(t)
	s.Activate(t, audited(t))
	s.must(t, "admin", "POST", "/api/v1/namespaces", `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"shop"}}`)
	for name, size := range map[string]string{"db-1": "100", "db-2": "100", "db-3": "300"} {
		s.must(t, "dana", "POST", databases, strings.Replace(database(name, `,"storageGiB":`+size), `"metadata":{`, `"metadata":{"labels":{"size":"`+size+`"},`, 1))
	}
	s.refused(t, 403, "olga", "DELETE", databases+"?labelSelector=size%3D100", "")
	s.refused(t, 403, "olga", "DELETE", databases, "")
	s.must(t, "dana", "DELETE", databases+"?labelSelector=size%3D300", "")
	s.refused(t, 403, "olga", "DELETE", databases+"?limit=2", "") // there are two left

	if p := s.plan(t, "admin", audited(t), week); len(p.Replay.Flips) != 0 || p.Replay.Undecided != 0 || p.Replay.Refusals != 3 {
		t.Errorf("the same policy: %s", show(p))
	}
	granted := func(pairs ...string) string {
		return audited(t, append([]string{`resources: ["databases"], verbs: ["get", "list"]}`, `resources: ["databases"], verbs: ["get", "list", "deletecollection"]}`}, pairs...)...)
	}
	p := s.plan(t, "admin", granted(), week)
	if f := onlyFlip(t, p, false); f.User != "olga" || f.Verb != "deletecollection" || f.Count != 3 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	// A rule that keeps the large one refuses the collection that had it, and the write of the one that was deleted.
	p = s.plan(t, "admin", granted("admission: validate: limit: {", `admission: validate: kept: {
			match: {apiGroups: ["data.corp.example"], resources: ["databases"], operations: ["DELETE"]}
			validations: small: {expression: "oldObject.spec.storageGiB < 200", message: "it is large"}
		}
		admission: validate: limit: {`), week)
	if f := flip(t, p, "olga", "deletecollection", "authorization"); f.Refused || f.Count != 2 || len(p.Replay.Flips) != 2 || p.Replay.Undecided != 0 {
		t.Errorf("%s", show(p))
	}
	if f := flip(t, p, "dana", "deletecollection", "validation"); !f.Refused || f.Count != 1 || f.Rule != "data/validate/kept/small" {
		t.Errorf("%s", show(p))
	}
}
