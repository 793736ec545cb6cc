package versions_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"stele.dev/stele/core/object/versions"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/eventlog/memlog"
	"stele.dev/stele/schemas/samples"
)

// machines is a bundle whose machines have two versions with different schemas.
func machines(storage, steps string) string {
	return `package test

import "stele.dev/policy"

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["example.com"], namespaces: ["*"]
		kinds: "machines.example.com": {
			group: "example.com", names: {kind: "Machine", plural: "machines"}, storageVersion: "` + storage + `"
			versions: v1: {
				#schema: {
					spec: {cpus: int & >=1, host: =~"^[a-z]+$", port: int & >=1 & <=9999, class: "Small" | "Large", mode: *"fast" | "slow", note?: string}
					status?: {ready?: bool}
				}
				subresources: status: {}
				selectableFields: [".spec.cpus"]
				additionalPrinterColumns: [{name: "CPUs", type: "integer", jsonPath: ".spec.cpus"}]
			}
			versions: v1beta1: {
				#schema: {
					spec: {size: int & >=1, address: =~"^[a-z]+:[1-9][0-9]{0,3}$", class: "small" | "large", note?: string}
					status?: {ready?: bool}
				}
				subresources: status: {}
				selectableFields: [".spec.size"]
				additionalPrinterColumns: [{name: "Size", type: "integer", jsonPath: ".spec.size"}]
				conversion: [
					` + steps + `
				]
			}
		}
	}
}
`
}

const steps = `{rename: {from: "spec.size", to: "spec.cpus"}},
	{split: {from: "spec.address", to: ["spec.host", "spec.port"], separator: ":"}},
	{map: {field: "spec.class", values: {small: "Small", large: "Large"}}},
	{drop: {field: "spec.mode", reason: "it is new in v1"}}`

const (
	v1Path   = "/apis/example.com/v1/namespaces/default/machines"
	betaPath = "/apis/example.com/v1beta1/namespaces/default/machines"
)

func v1Machine(name string) string {
	return `{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"` + name + `"},"spec":{"cpus":2,"host":"db","port":80,"class":"Large","mode":"slow"}}`
}

func betaMachine(name string) string {
	return `{"apiVersion":"example.com/v1beta1","kind":"Machine","metadata":{"name":"` + name + `"},"spec":{"size":3,"address":"web:443","class":"small"}}`
}

// withMachines starts a control plane with a bundle of machines.
func withMachines(t testing.TB, bundle string) *planetest.Replica {
	t.Helper()
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, bundle)
	return p
}

// specOf returns the spec in an answer as JSON.
func specOf(a planetest.Answer) string {
	text, _ := json.Marshal(a.Field("spec"))
	return string(text)
}

// An object that is written in one version is read in the other, whichever is stored.
func TestVersionsWithDifferentSchemasAreConverted(t *testing.T) {
	for _, storage := range []string{"v1", "v1beta1"} {
		t.Run(storage+" is stored", func(t *testing.T) {
			p := withMachines(t, machines(storage, steps))
			mode := map[string]string{"v1": "slow", "v1beta1": "fast"}[storage] // v1beta1 does not store it
			p.Must(t, 201, "POST", v1Path, v1Machine("a"))
			p.Must(t, 201, "POST", betaPath, betaMachine("b"))
			for path, want := range map[string]string{
				v1Path + "/a": `{"class":"Large","cpus":2,"host":"db","mode":"` + mode + `","port":80}`, betaPath + "/a": `{"address":"db:80","class":"large","size":2}`,
				v1Path + "/b": `{"class":"Small","cpus":3,"host":"web","mode":"fast","port":443}`, betaPath + "/b": `{"address":"web:443","class":"small","size":3}`,
			} {
				a := p.Must(t, 200, "GET", path, "")
				if got := specOf(a); got != want || !strings.Contains(path, a.Field("apiVersion").(string)) {
					t.Errorf("%s: %s %s", path, a.Field("apiVersion"), got)
				}
			}
			for path, want := range map[string]string{v1Path: `"cpus":2`, betaPath: `"size":2`} {
				for range 2 { // the second time from memory
					list := p.Must(t, 200, "GET", path, "")
					if text := string(list.Body); !strings.Contains(text, want) || len(list.Field("items").([]any)) != 2 {
						t.Errorf("%s: %s", path, text)
					}
				}
				if table := p.Must(t, 200, "GET", path, "", "Accept", "application/json;as=Table;g=meta.k8s.io;v=v1"); !strings.Contains(string(table.Body), `"cells":["a",2]`) {
					t.Errorf("%s", table)
				}
			}
			for _, selected := range []string{v1Path + "?fieldSelector=spec.cpus=3", betaPath + "?fieldSelector=spec.size=3"} {
				if list := p.Must(t, 200, "GET", selected, ""); len(list.Field("items").([]any)) != 1 {
					t.Errorf("%s: %s", selected, list)
				}
			}
			p.Must(t, 400, "GET", betaPath+"?fieldSelector=spec.cpus=3", "")
		})
	}
}

// Updates, patches, applies, status writes and deletes work in each version. What a version does not show stays as it is.
func TestWritesInEachVersion(t *testing.T) {
	p := withMachines(t, machines("v1", steps))
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	client := planetest.DynamicClient(t, server.URL, nil)
	in := func(version string) func() (o *unstructured.Unstructured) {
		return func() *unstructured.Unstructured {
			o, err := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: version, Resource: "machines"}).Namespace("default").Get(t.Context(), "a", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
	}
	beta := client.Resource(schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "machines"}).Namespace("default")
	get, getBeta := in("v1"), in("v1beta1")
	p.Must(t, 201, "POST", v1Path, v1Machine("a"))
	check := func(what, want string) {
		t.Helper()
		if got, _ := json.Marshal(get().Object["spec"]); string(got) != want {
			t.Errorf("after %s: %s, want %s", what, got, want)
		}
	}
	o := getBeta()
	_ = unstructured.SetNestedField(o.Object, int64(5), "spec", "size")
	if _, err := beta.Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check("an update", `{"class":"Large","cpus":5,"host":"db","mode":"slow","port":80}`)
	if _, err := beta.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"address":"app:1"}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	check("a merge patch", `{"class":"Large","cpus":5,"host":"app","mode":"slow","port":1}`)
	if _, err := beta.Patch(t.Context(), "a", types.JSONPatchType, []byte(`[{"op":"test","path":"/spec/size","value":5},{"op":"replace","path":"/spec/class","value":"small"}]`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	check("a JSON patch", `{"class":"Small","cpus":5,"host":"app","mode":"slow","port":1}`)
	applied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1beta1", "kind": "Machine", "metadata": map[string]any{"name": "a"}, "spec": map[string]any{"note": "x"}}}
	if _, err := beta.Apply(t.Context(), "a", applied, metav1.ApplyOptions{FieldManager: "applier"}); err != nil {
		t.Fatal(err)
	}
	check("an apply", `{"class":"Small","cpus":5,"host":"app","mode":"slow","note":"x","port":1}`)
	o = getBeta()
	_ = unstructured.SetNestedField(o.Object, true, "status", "ready")
	if _, err := beta.UpdateStatus(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	check("a status", `{"class":"Small","cpus":5,"host":"app","mode":"slow","note":"x","port":1}`)
	if o := get(); o.Object["status"].(map[string]any)["ready"] != true || o.GetGeneration() != 5 {
		t.Errorf("%v", o)
	}
	before := p.Committer.Tip().Revision()
	if _, err := beta.Update(t.Context(), getBeta(), metav1.UpdateOptions{}); err != nil || p.Committer.Tip().Revision() != before {
		t.Errorf("a write that changes nothing is in the log: %v", err)
	}
	if _, err := beta.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":9}}`), metav1.PatchOptions{DryRun: []string{"All"}}); err != nil {
		t.Error(err)
	}
	if _, err := beta.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"cpus":9}}`), metav1.PatchOptions{FieldValidation: "Strict"}); err == nil || !strings.Contains(err.Error(), `unknown field "spec.cpus"`) {
		t.Errorf("a field of the other version: %v", err)
	}
	if _, err := beta.Patch(t.Context(), "a", types.MergePatchType, []byte(`{"spec":{"size":0}}`), metav1.PatchOptions{}); err == nil || !strings.Contains(err.Error(), "spec.size") {
		t.Errorf("an invalid value: %v", err)
	}
	uid := types.UID("another")
	if err := beta.Delete(t.Context(), "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}); err == nil {
		t.Error("deleted with another uid")
	}
	if err := beta.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// The managers of fields own them in the version that they wrote; conflicts are found across versions.
func TestManagersOwnFieldsInTheirVersion(t *testing.T) {
	p := withMachines(t, machines("v1", steps))
	apply := func(code int, path, manager, body string) planetest.Answer {
		t.Helper()
		return p.Must(t, code, "PATCH", path+"/a?fieldManager="+manager, body, "Content-Type", "application/apply-patch+yaml")
	}
	apply(201, v1Path, "one", v1Machine("a"))
	if a := apply(409, betaPath, "two", strings.Replace(betaMachine("a"), `"size":3`, `"size":4`, 1)); !strings.Contains(string(a.Body), `conflicts with \"one\"`) || !strings.Contains(string(a.Body), ".spec.cpus") {
		t.Errorf("%s", a)
	}
	apply(200, betaPath, "two", `{"apiVersion":"example.com/v1beta1","kind":"Machine","metadata":{"name":"a"},"spec":{"size":2}}`)
	entries := map[string]string{}
	for _, e := range p.Must(t, 200, "GET", v1Path+"/a", "").Field("metadata", "managedFields").([]any) {
		fields, _ := json.Marshal(e.(map[string]any)["fieldsV1"])
		entries[e.(map[string]any)["manager"].(string)] = e.(map[string]any)["apiVersion"].(string) + " " + string(fields)
	}
	if entries["two"] != `example.com/v1beta1 {"f:spec":{"f:size":{}}}` || !strings.HasPrefix(entries["one"], "example.com/v1 ") || !strings.Contains(entries["one"], `"f:cpus"`) {
		t.Errorf("%v", entries)
	}
}

func TestWatchesConvert(t *testing.T) {
	p := withMachines(t, machines("v1", steps))
	from := p.Committer.Tip().Revision()
	watches := map[string]*planetest.Watching{}
	for version, path := range map[string]string{"v1": v1Path, "v1beta1": betaPath} {
		watches[version] = p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", path, from))
	}
	p.Must(t, 201, "POST", betaPath, betaMachine("a"))
	p.Must(t, 200, "PATCH", v1Path+"/a", `{"spec":{"cpus":7}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 200, "DELETE", betaPath+"/a", "")
	for version, field := range map[string]string{"v1": "cpus", "v1beta1": "size"} {
		for i, size := range []int{3, 7, 7} {
			e := watches[version].Next(t)
			if e.Object["apiVersion"] != "example.com/"+version || fmt.Sprint(e.Object["spec"].(map[string]any)[field]) != fmt.Sprint(size) {
				t.Errorf("%s, event %d: %v", version, i, e.Object)
			}
		}
	}
}

// Another version is stored: what was written before is converted when it is shown, and the past stays as it was.
func TestAnotherSchemaIsStored(t *testing.T) {
	var store memlog.Store
	p := planetest.StartReplica(t, store.Open(nil), 0)
	p.Bootstrap(t, machines("v1beta1", steps))
	p.Must(t, 201, "POST", betaPath, betaMachine("a"))
	before := p.Committer.Tip().Revision()
	was := p.Must(t, 200, "GET", betaPath+"/a", "")
	p.Activate(t, machines("v1", steps))
	stored := func(p *planetest.Replica) string {
		return string(p.Committer.Tip().Objects.Get(schema.GroupResource{Group: "example.com", Resource: "machines"}, "default", "a").JSON)
	}
	if text := stored(p); !strings.HasPrefix(text, `{"apiVersion":"example.com/v1",`) || !strings.Contains(text, `"cpus":3,"host":"web","mode":"fast"`) {
		t.Errorf("stored is %s", text)
	}
	if is := p.Must(t, 200, "GET", betaPath+"/a", ""); string(is.Body) != string(was.Body) {
		t.Errorf("it was %s\nand is %s", was, is)
	}
	// With another conversion, the objects that were written before are shown by it.
	changed := p.Committer.Tip().Revision()
	p.Activate(t, machines("v1", strings.Replace(steps, `small: "Small", large: "Large"`, `small: "Large", large: "Small"`, 1)))
	if spec := specOf(p.Must(t, 200, "GET", v1Path+"/a", "")); !strings.Contains(spec, `"class":"Large"`) {
		t.Errorf("%s", spec)
	}
	for revision, class := range map[uint64]string{before: "Small", changed: "Small", p.Committer.Tip().Revision(): "Large"} {
		if spec := specOf(p.Must(t, 200, "GET", fmt.Sprintf("/at/%d%s/a", revision, v1Path), "")); !strings.Contains(spec, `"class":"`+class+`"`) {
			t.Errorf("at %d: %s, want %s", revision, spec, class)
		}
	}
	if again := planetest.StartReplica(t, store.Open(nil), 0); stored(again) != stored(p) {
		t.Errorf("after a restart\n%s\nbefore\n%s", stored(again), stored(p))
	}
	// The version in which objects were written cannot go.
	only := strings.Replace(machines("v1", steps), "versions: v1beta1:", "_gone:", 1)
	if a := p.Must(t, 409, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, only, nil)); !strings.Contains(string(a.Body), "v1beta1") {
		t.Errorf("%s", a)
	}
}

// sized is a bundle whose boxes have some versions.
func sized(storage, versions string) string {
	return `package test

import "stele.dev/policy"

#Sized: spec: size: int
#Replicated: spec: replicas: int
#Rename: [{rename: {from: "spec.size", to: "spec.replicas"}}]

bundle: policy.#Bundle & {
	cluster: "test"
	teams: t: {
		contact: "#t", groups: ["example.com"], namespaces: ["*"]
		kinds: "boxes.example.com": {
			group: "example.com", names: {kind: "Box", plural: "boxes"}, storageVersion: "` + storage + `"
			` + versions + `
		}
	}
}
`
}

// A version of the same schema as others can be removed while objects are stored that were written in it. A later policy with a conversion
// is refused without it: nothing says how these objects are converted.
func TestAVersionThatWasRemovedBeforeIsNeededAgain(t *testing.T) {
	const one, two = "versions: v1: #schema: #Sized\n", "versions: v2: #schema: #Sized\n"
	const three = "versions: v3: #schema: #Replicated\nversions: v2: {#schema: #Sized, conversion: #Rename}\n"
	p := withMachines(t, sized("v1", one))
	p.Must(t, 201, "POST", "/apis/example.com/v1/namespaces/default/boxes", `{"apiVersion":"example.com/v1","kind":"Box","metadata":{"name":"a"},"spec":{"size":3}}`)
	p.Activate(t, sized("v2", one+two))
	p.Activate(t, sized("v2", two))
	if a := p.Must(t, 409, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, sized("v3", three), nil)); !strings.Contains(string(a.Body), "1 object of boxes.example.com was written in v1, for example default/a") {
		t.Errorf("%s", a)
	}
	p.Activate(t, sized("v3", three+"versions: v1: {#schema: #Sized, served: false, conversion: #Rename}\n"))
	for version, want := range map[string]string{"v3": `{"replicas":3}`, "v2": `{"size":3}`} {
		if spec := specOf(p.Must(t, 200, "GET", "/apis/example.com/"+version+"/namespaces/default/boxes/a", "")); spec != want {
			t.Errorf("%s: %s, want %s", version, spec, want)
		}
	}
}

// A push tries what was written: the fields that its version drops, and its conversion.
func TestFieldsThatTheWrittenVersionDropsAreSaid(t *testing.T) {
	const noted = "versions: v2: #schema: spec: {size: int, note?: string}\n"
	const next = "versions: v3: #schema: #Replicated\nversions: v2: {#schema: #Sized, conversion: #Rename}\n"
	p := withMachines(t, sized("v2", noted))
	p.Must(t, 201, "POST", "/apis/example.com/v2/namespaces/default/boxes", `{"apiVersion":"example.com/v2","kind":"Box","metadata":{"name":"a"},"spec":{"size":3,"note":"x"}}`)
	if a := p.Must(t, 409, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, sized("v3", next), nil)); !strings.Contains(string(a.Body), "spec.note is not in the new schema; 1 object has it, for example default/a") {
		t.Errorf("%s", a)
	}
	p.Activate(t, sized("v3", next))
	more := strings.NewReplacer("#Replicated", "spec: {replicas: int, more?: string}", "#Sized", "spec: {size: int, more?: string}").Replace(next)
	// The field is not shown any more, so that the next policy does not drop it.
	p.Must(t, 201, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, sized("v3", more), nil))
}

// An object that cannot be converted keeps the version in which it was written when it is marked as deleted.
func TestAnObjectThatCannotBeConvertedIsMarkedAsDeleted(t *testing.T) {
	p := withMachines(t, machines("v1beta1", steps))
	p.Must(t, 201, "POST", betaPath, strings.NewReplacer(`"size":3`, `"size":3,"note":"bad"`, `"name":"a"`, `"name":"a","finalizers":["example.com/x"]`).Replace(betaMachine("a")))
	p.Activate(t, machines("v1", fails))
	partial := "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	p.Must(t, 200, "DELETE", betaPath+"/a", "", "Accept", partial)
	a := p.Must(t, 200, "GET", betaPath+"/a", "")
	if spec := specOf(a); spec != `{"address":"web:443","class":"small","note":"bad","size":3}` || a.Field("metadata", "deletionTimestamp") == nil {
		t.Errorf("%s", a)
	}
}

// A watch ends when its objects are converted in another way, because no event would say so. A watch of the stored version goes on.
func TestAnotherConversionEndsWatches(t *testing.T) {
	p := withMachines(t, machines("v1", steps))
	p.Must(t, 201, "POST", v1Path, v1Machine("a"))
	watch := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", betaPath, p.Committer.Tip().Revision()))
	ofStored := p.Watch(t, fmt.Sprintf("%s?watch=1&resourceVersion=%d", v1Path, p.Committer.Tip().Revision()))
	p.Activate(t, machines("v1", strings.Replace(steps, `small: "Small", large: "Large"`, `small: "Large", large: "Small"`, 1)))
	if e := watch.Next(t); e.Type != "ERROR" || fmt.Sprint(e.Object["code"]) != "410" {
		t.Errorf("%v", e)
	}
	p.Must(t, 201, "POST", v1Path, v1Machine("b"))
	if e := ofStored.Next(t); e.Type != "ADDED" {
		t.Errorf("%v", e)
	}
}

// A push whose conversion some stored objects do not pass is refused, and says which.
func TestAConversionThatStoredObjectsDoNotPassIsRefused(t *testing.T) {
	p := withMachines(t, machines("v1beta1", steps))
	p.Must(t, 201, "POST", betaPath, betaMachine("good"))
	p.Must(t, 201, "POST", betaPath, strings.Replace(betaMachine("odd"), `"size":3`, `"size":3,"note":"bad"`, 1))
	a := p.Must(t, 409, "POST", planetest.PoliciesPath, planetest.PolicyBody(t, machines("v1", fails), nil))
	if !strings.Contains(string(a.Body), "1 objects of machines.example.com cannot be converted") || !strings.Contains(string(a.Body), "for example default/odd") {
		t.Errorf("%s", a)
	}
}

// fails converts all machines but those with a note.
const fails = steps + `,
	{cel: {up: "spec.note": "self.spec.?note.optMap(n, n == 'bad' ? string(1 / 0) : n)", down: "spec.note": "self.spec.?note.optMap(n, n == 'bad' ? string(1 / 0) : n)"}}`

// An object that cannot be converted fails the requests that need it, and nothing else.
func TestAnObjectThatCannotBeConverted(t *testing.T) {
	p := withMachines(t, machines("v1", fails))
	p.Must(t, 201, "POST", v1Path, v1Machine("good"))
	p.Must(t, 201, "POST", v1Path, strings.Replace(v1Machine("bad"), `"cpus":2`, `"cpus":2,"note":"bad"`, 1))
	revision := p.Committer.Tip().Revision()
	for _, path := range []string{betaPath, betaPath + "/bad"} {
		a := p.Must(t, 500, "GET", path, "")
		if text := string(a.Body); !strings.Contains(text, "machines.example.com default/bad: cannot be converted from v1 to v1beta1: cel: ") || !strings.Contains(text, "bundle.cue:") {
			t.Errorf("%s: %s", path, text)
		}
	}
	p.Must(t, 500, "DELETE", betaPath+"/bad", "")
	p.Must(t, 500, "PATCH", betaPath+"/bad", `{"spec":{"size":9}}`, "Content-Type", "application/merge-patch+json")
	if a := p.Must(t, 422, "POST", betaPath, strings.Replace(betaMachine("worse"), `"size":3`, `"size":3,"note":"bad"`, 1)); !strings.Contains(string(a.Body), "spec.note") {
		t.Errorf("%s", a)
	}
	if p.Committer.Tip().Revision() != revision {
		t.Error("a request that failed has written")
	}
	p.Must(t, 200, "GET", betaPath+"/good", "")
	p.Must(t, 200, "GET", v1Path, "")
	partial := "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
	p.Must(t, 200, "GET", betaPath+"/bad", "", "Accept", partial)
	p.Must(t, 200, "GET", betaPath, "", "Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1")
	p.Must(t, 200, "DELETE", betaPath+"/bad", "", "Accept", partial)
}

// Any object of either version comes back as it was, by way of the other, whichever is stored.
func TestRandomObjectsComeBack(t *testing.T) {
	for _, storage := range []string{"v1", "v1beta1"} {
		p := withMachines(t, machines(storage, steps))
		rng := rand.New(rand.NewPCG(7, uint64(len(storage))))
		kind := p.Committer.Tip().Policy.Kind(schema.GroupResource{Group: "example.com", Resource: "machines"})
		for i := range 200 {
			v := kind.Versions[i%2]
			x, _ := samples.Maker{Rand: rng, Full: 60}.Witness(v.Schema).(map[string]any)
			delete(x, "status") // written by its subresource
			x["apiVersion"], x["kind"], x["metadata"] = "example.com/"+v.Name, "Machine", map[string]any{"name": fmt.Sprintf("m%d", i)}
			body, err := json.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			path, other := v1Path, betaPath
			if v.Name != "v1" {
				path, other = betaPath, v1Path
			}
			a := p.Do("POST", path+"?fieldValidation=Strict", string(body))
			if a.Code == 400 || a.Code == 422 {
				continue // nearly valid
			}
			if a.Code != 201 {
				t.Fatalf("%s: %s", body, a)
			}
			name := fmt.Sprintf("/m%d", i)
			first := specOf(p.Must(t, 200, "GET", path+name, ""))
			seen := p.Must(t, 200, "GET", other+name, "")
			p.Must(t, 200, "PUT", other+name, string(seen.Body))
			if again := specOf(p.Must(t, 200, "GET", path+name, "")); again != first {
				t.Errorf("%s stored, %s: %s\nis %s\nafter it was written as %s", storage, path, body, again, specOf(seen))
			}
		}
	}
}

// Rules that name one version see the objects of others in it, and what they change reaches the version of the write.
func TestRulesSeeConvertedObjects(t *testing.T) {
	rules := `admission: validate: small: {match: {apiGroups: ["example.com"], apiVersions: ["v1beta1"], resources: ["machines"]}, validations: x: {expression: "object.spec.size <= 5", message: "too large"}}
		admission: mutate: note: {order: 1, match: {apiGroups: ["example.com"], apiVersions: ["v1beta1"], resources: ["machines"], operations: ["CREATE"]}, mutations: x: {patchType: "ApplyConfiguration", expression: "Object{spec: Object.spec{note: string(object.spec.size)}}"}}
		kinds:`
	p := withMachines(t, strings.Replace(machines("v1", steps), "kinds:", rules, 1))
	p.Must(t, 201, "POST", v1Path, v1Machine("a"))
	if spec := specOf(p.Must(t, 200, "GET", v1Path+"/a", "")); spec != `{"class":"Large","cpus":2,"host":"db","mode":"slow","note":"2","port":80}` {
		t.Errorf("%s", spec)
	}
	if a := p.Must(t, 422, "POST", v1Path, strings.Replace(v1Machine("b"), `"cpus":2`, `"cpus":6`, 1)); !strings.Contains(string(a.Body), "too large") {
		t.Errorf("%s", a)
	}
	p.Must(t, 201, "POST", betaPath, betaMachine("c"))
}

// bigMachine is an object of about 1 KiB, in the stored version.
func bigMachine(i int) string {
	return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Machine","metadata":{"name":"m%05d","labels":{"app":"bench"}},"spec":{"cpus":%d,"host":"db","port":80,"class":"Large","note":%q},"status":{}}`, i, 1+i, strings.Repeat("Lorem ipsum dolor sit amet ", 20))
}

// One conversion of a stored object of about 1 KiB, with decoding and encoding.
func BenchmarkConvert(b *testing.B) {
	p := withMachines(b, machines("v1", steps))
	p.Must(b, 201, "POST", v1Path, bigMachine(1))
	o := p.Committer.Tip().Objects.Get(schema.GroupResource{Group: "example.com", Resource: "machines"}, "default", "m00001")
	as := versions.As(p.Committer.Tip().Policy.Version(schema.GroupVersionResource{Group: "example.com", Version: "v1beta1", Resource: "machines"}))
	b.SetBytes(int64(len(o.JSON)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := as.Of(o.JSON); err != nil {
			b.Fatal(err)
		}
	}
}

// A list of 10,000 objects of about 1 KiB: as they are stored, in another version for the first time, and again.
func BenchmarkListConverted(b *testing.B) {
	p := withMachines(b, machines("v1", steps))
	for i := range 10_000 {
		p.Must(b, 201, "POST", v1Path, bigMachine(i))
	}
	list := func(b *testing.B, path string) {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, planetest.Request("GET", path, ""))
		if w.Code != 200 {
			b.Fatal(w.Code)
		}
	}
	for name, path := range map[string]string{"stored": v1Path, "converted": betaPath} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				list(b, path)
			}
		})
	}
}
