package builtin

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"stele.dev/stele/schemas"
	"stele.dev/stele/schemas/program"
)

func kindsByName(t testing.TB) map[string]schemas.Kind {
	t.Helper()
	kinds, err := Kinds()
	if err != nil {
		t.Fatal(err)
	}
	byName := make(map[string]schemas.Kind)
	for _, k := range kinds {
		if FaceOf(k.Resource()) == nil {
			byName[k.Kind] = k
		}
	}
	return byName
}

// strategy names the parts of Kubernetes' storage strategy in which the version differs from the usual
// one.
func strategy(v schemas.Version) string {
	var has []string
	for _, x := range []struct {
		has  bool
		name string
	}{{v.AllowCreateOnUpdate, "creates on update"}, {v.NoDeleteCollection, "one by one"}, {v.NoGarbageCollection, "no dependents"}} {
		if x.has {
			has = append(has, x.name)
		}
	}
	return strings.Join(has, ", ")
}

func TestKinds(t *testing.T) {
	kinds, err := Kinds()
	if err != nil {
		t.Fatal(err)
	}
	type summary struct {
		resource, kind, list, singular, short string
		namespaced, status, unconditional     bool
		strategy                              string
		columns, selectable                   string
	}
	var got []summary
	for _, k := range kinds {
		v := k.Versions[0]
		var columns []string
		for _, c := range v.Columns {
			columns = append(columns, c.Name)
		}
		if !strings.HasPrefix(k.Source.File, "builtin/") || v.Schema.Source.IsZero() {
			t.Errorf("%s is at %v, its schema at %v", k.Kind, k.Source, v.Schema.Source)
		}
		if v.Name != "v1" || k.StorageVersion != "v1" || !v.Served || !k.Builtin || len(k.Versions) != 1 {
			t.Errorf("%s: %+v", k.Kind, k)
		}
		got = append(got, summary{
			k.Resource(), k.Kind, k.ListKind, k.Singular, strings.Join(k.ShortNames, " "),
			k.Namespaced, v.Status, v.AllowUnconditionalUpdate, strategy(v),
			strings.Join(columns, " "), strings.Join(v.SelectableFields, " "),
		})
	}
	want := []summary{
		{"configmaps", "ConfigMap", "ConfigMapList", "configmap", "cm", true, false, true, "", "Data Age", ""},
		{"events", "Event", "EventList", "event", "ev", true, false, true, "creates on update, no dependents", "",
			".involvedObject.kind .involvedObject.namespace .involvedObject.name .involvedObject.uid .involvedObject.apiVersion " +
				".involvedObject.resourceVersion .involvedObject.fieldPath .reason .reportingComponent .source .type"},
		{"namespaces", "Namespace", "NamespaceList", "namespace", "ns", false, true, true, "one by one", "Status Age", ".status.phase"},
		{"resourcequotas", "ResourceQuota", "ResourceQuotaList", "resourcequota", "quota", true, true, true, "", "Age", ""},
		{"secrets", "Secret", "SecretList", "secret", "", true, false, true, "", "Type Data Age", ".type"},
		{"serviceaccounts", "ServiceAccount", "ServiceAccountList", "serviceaccount", "sa", true, false, true, "", "Secrets Age", ""},
		{"leases.coordination.k8s.io", "Lease", "LeaseList", "lease", "", true, false, false, "creates on update", "Holder Age", ""},
		{"events.events.k8s.io", "Event", "EventList", "event", "ev", true, false, true, "creates on update, no dependents", "",
			".regarding.kind .regarding.namespace .regarding.name .regarding.uid .regarding.apiVersion " +
				".regarding.resourceVersion .regarding.fieldPath .reason .reportingController .type"},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(summary{})); diff != "" {
		t.Error(diff)
	}
}

// TestFieldsAreUpstreams compares the fields of each schema with the Go type of the same kind, by name
// and JSON type.
func TestFieldsAreUpstreams(t *testing.T) {
	kinds := kindsByName(t)
	for name, typ := range map[string]reflect.Type{
		"Namespace":      reflect.TypeFor[corev1.Namespace](),
		"ConfigMap":      reflect.TypeFor[corev1.ConfigMap](),
		"Secret":         reflect.TypeFor[corev1.Secret](),
		"ServiceAccount": reflect.TypeFor[corev1.ServiceAccount](),
		"ResourceQuota":  reflect.TypeFor[corev1.ResourceQuota](),
		"Event":          reflect.TypeFor[corev1.Event](),
		"Lease":          reflect.TypeFor[coordinationv1.Lease](),
	} {
		compareFields(t, name, kinds[name].Versions[0].Schema, typ, true)
	}
}

func compareFields(t *testing.T, path string, n *schemas.Node, typ reflect.Type, root bool) {
	t.Helper()
	for typ.Kind() == reflect.Pointer {
		typ = typ.Elem()
	}
	switch {
	case typ == reflect.TypeFor[metav1.Time](), typ == reflect.TypeFor[metav1.MicroTime]():
		if n.Kinds != schemas.StringKind || n.Format != schemas.FormatDateTime {
			t.Errorf("%s is not a time", path)
		}
	case typ == reflect.TypeFor[resource.Quantity]():
		if n.Kinds != schemas.StringKind || n.Format != schemas.FormatQuantity {
			t.Errorf("%s is not a quantity", path)
		}
	case typ == reflect.TypeFor[[]byte]():
		if n.Kinds != schemas.StringKind || n.Format != schemas.FormatByte {
			t.Errorf("%s is not bytes", path)
		}
	case typ.Kind() == reflect.String:
		if n.Kinds != schemas.StringKind {
			t.Errorf("%s is %s", path, n.Kinds)
		}
	case typ.Kind() == reflect.Bool:
		if n.Kinds != schemas.BoolKind {
			t.Errorf("%s is %s", path, n.Kinds)
		}
	case typ.Kind() == reflect.Int32:
		if n.Kinds != schemas.IntegerKind || n.Scalars[0].Maximum.Value != "2147483647" {
			t.Errorf("%s is not an int32", path)
		}
	case typ.Kind() == reflect.Slice:
		if n.Kinds != schemas.ListKind {
			t.Fatalf("%s is %s", path, n.Kinds)
		}
		compareFields(t, path+"[]", n.List.Items, typ.Elem(), false)
	case typ.Kind() == reflect.Map:
		if n.Kinds != schemas.StructKind || len(n.Struct.Patterns) != 1 {
			t.Fatalf("%s is not a map", path)
		}
		compareFields(t, path+"[]", n.Struct.Patterns[0].Value, typ.Elem(), false)
	case typ.Kind() == reflect.Struct:
		var want, got []string
		for i := range typ.NumField() {
			f := typ.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if name == "" || name == "metadata" && root {
				continue
			}
			want = append(want, name)
			for _, field := range n.Struct.Fields {
				if field.Name == name {
					compareFields(t, path+"."+name, field.Schema, f.Type, false)
				}
			}
		}
		for _, field := range n.Struct.Fields {
			got = append(got, field.Name)
			if field.Schema.Doc == "" {
				t.Errorf("%s.%s has no documentation", path, field.Name)
			}
		}
		slices.Sort(want)
		slices.Sort(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		if n.Struct.Open {
			t.Errorf("%s is open", path)
		}
	default:
		t.Errorf("%s is a %s", path, typ)
	}
}

func objectOf(t testing.TB, text string) map[string]any {
	t.Helper()
	var object map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &object); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return object
}

// source matches the line of a rule, which changes with every edit.
var source = regexp.MustCompile(` \(builtin/[a-z]+\.cue:\d+\)$`)

// admit prepares and validates an object as the server does. It returns the violations without the lines
// of the rules.
func admit(t testing.TB, kind string, object, old map[string]any) []string {
	t.Helper()
	k := kindsByName(t)[kind]
	p, err := program.New(k.Versions[0].Schema)
	if err != nil {
		t.Fatal(err)
	}
	Prepare(kind, object, old)
	p.Prepare(object)
	var messages []string
	for _, e := range append(p.Validate(object), Validate(kind, object, old)...) {
		messages = append(messages, source.ReplaceAllString(e.Error(), ""))
	}
	return messages
}

func TestPrepare(t *testing.T) {
	for _, test := range []struct {
		name, kind        string
		object, old, want string
	}{
		{
			"a new namespace", "Namespace",
			`{"metadata": {"name": "a"}}`, ``,
			`{"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}`,
		},
		{
			"a new namespace with finalizers and a status", "Namespace",
			`{"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"finalizers": ["example.com/x"]}, "status": {"phase": "Terminating"}}`, ``,
			`{"metadata": {"name": "a", "labels": {"x": "y", "kubernetes.io/metadata.name": "a"}}, "spec": {"finalizers": ["example.com/x", "kubernetes"]}, "status": {"phase": "Active"}}`,
		},
		{
			"a namespace that is finalized", "Namespace",
			`{"metadata": {"name": "a"}, "spec": {}, "status": {"phase": "Terminating"}}`, `{"metadata": {"name": "a"}, "status": {"phase": "Terminating"}}`,
			`{"metadata": {"name": "a", "labels": {"kubernetes.io/metadata.name": "a"}}, "spec": {}, "status": {"phase": "Terminating"}}`,
		},
		{
			"a config map", "ConfigMap",
			`{"data": {"a": "b", "c": null}, "binaryData": {"x": "YQ\n=="}, "immutable": null}`, ``,
			`{"data": {"a": "b", "c": ""}, "binaryData": {"x": "YQ=="}}`,
		},
		{
			"a secret", "Secret",
			`{"data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"b": "bb", "c": "é"}}`, ``,
			`{"data": {"a": "YQ==", "b": "YmI=", "c": "w6k="}, "type": "Opaque"}`,
		},
		{
			"a secret of text only", "Secret",
			`{"stringData": {"a": "a"}, "type": "x"}`, ``,
			`{"data": {"a": "YQ=="}, "type": "x"}`,
		},
		{
			"a secret with no text", "Secret",
			`{"stringData": {}}`, ``,
			`{"type": "Opaque"}`,
		},
		{
			"a service account", "ServiceAccount",
			`{"secrets": [{"name": "a", "kind": "Secret", "namespace": "x"}, {}], "imagePullSecrets": [{}]}`, ``,
			`{"secrets": [{"name": "a"}, {}], "imagePullSecrets": [{"name": ""}]}`,
		},
		{
			"an event as a typed client sends it", "Event",
			`{"metadata": {"namespace": "n", "creationTimestamp": null}, "involvedObject": {"namespace": "n"}, "source": {}, "firstTimestamp": null, "lastTimestamp": null, "eventTime": null, "series": null, "reportingComponent": "", "reportingInstance": ""}`, ``,
			`{"metadata": {"namespace": "n", "creationTimestamp": null}, "involvedObject": {"namespace": "n"}, "source": {}, "reportingComponent": "", "reportingInstance": ""}`,
		},
		{
			"a lease", "Lease",
			`{"spec": {"holderIdentity": null, "leaseDurationSeconds": 15.0}}`, ``,
			`{"spec": {"leaseDurationSeconds": 15}}`,
		},
		{
			"an empty lease", "Lease", `{}`, ``, `{"spec": {}}`,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := objectOf(t, test.object)
			var old map[string]any
			if test.old != "" {
				old = objectOf(t, test.old)
			}
			if errs := admit(t, test.kind, object, old); errs != nil {
				t.Error(errs)
			}
			if diff := cmp.Diff(objectOf(t, test.want), object); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestValidate(t *testing.T) {
	const frozen = "Forbidden: field is immutable when `immutable` is set"
	big := strings.Repeat("x", 1<<20)
	for _, test := range []struct {
		name, kind  string
		object, old string
		want        []string
	}{
		{"a config map", "ConfigMap", `{"data": {"a.b-c_D": "x"}, "binaryData": {"b": "YQ=="}}`, ``, nil},
		{"bad keys", "ConfigMap", `{"data": {"..a": "x", "b c": "y"}}`, ``, []string{
			`data[..a]: Invalid value: "..a": must not start with '..'`,
			`data[b c]: Invalid value: "b c": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
		}},
		{"a key twice", "ConfigMap", `{"data": {"a": "x"}, "binaryData": {"a": "YQ=="}}`, ``, []string{
			`data[a]: Invalid value: "a": duplicate of key present in binaryData`,
			`binaryData[a]: Invalid value: "a": duplicate of key present in data`,
		}},
		{"bad bytes", "ConfigMap", `{"binaryData": {"a": "%"}}`, ``, []string{
			`binaryData[a]: Invalid value: "%": must be base64`,
		}},
		{"too much data", "ConfigMap", `{"data": {"a": "` + big + `", "b": "1"}}`, ``, []string{
			`[]: Too long: may not be more than 1048576 bytes`,
		}},
		{"just enough data", "ConfigMap", `{"data": {"a": "` + big + `"}}`, ``, nil},
		{"a frozen config map that stays", "ConfigMap", `{"immutable": true, "data": {"a": "x"}}`, `{"immutable": true, "data": {"a": "x"}}`, nil},
		{"a frozen config map that thaws", "ConfigMap", `{"data": {"a": "y"}, "binaryData": {"b": ""}}`, `{"immutable": true, "data": {"a": "x"}}`, []string{
			"immutable: " + frozen, "data: " + frozen, "binaryData: " + frozen,
		}},
		{"a config map that freezes", "ConfigMap", `{"immutable": true, "data": {"a": "y"}}`, `{"data": {"a": "x"}}`, nil},
		{"an unknown field", "ConfigMap", `{"data": [1]}`, ``, []string{
			`data: Invalid value: must be an object, not a list`,
		}},

		{"another type of secret", "Secret", `{"type": "a"}`, `{"type": "b"}`, []string{
			`type: Invalid value: "a": field is immutable`,
		}},
		{"a frozen secret", "Secret", `{"immutable": true, "stringData": {"a": "y"}}`, `{"type": "Opaque", "immutable": true, "data": {"a": "eA=="}}`, []string{
			"data: " + frozen,
		}},
		{"bad bytes in a secret", "Secret", `{"data": {"a": "YQ"}}`, ``, []string{
			`data[a]: Invalid value: "YQ": must be base64`,
		}},
		{"too large a secret", "Secret", `{"stringData": {"a": "` + big + `", "b": "1"}}`, ``, []string{
			`data: Too long: may not be more than 1048576 bytes`,
		}},
		{"a bad key by way of stringData", "Secret", `{"stringData": {"a b": ""}}`, ``, []string{
			`data[a b]: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')`,
		}},
		{"text that is not text", "Secret", `{"stringData": {"a": 1}}`, ``, []string{
			`stringData[a]: Invalid value: 1: must be a string`,
		}},
		{"a token without an account", "Secret", `{"type": "kubernetes.io/service-account-token"}`, ``, []string{
			`metadata.annotations[kubernetes.io/service-account.name]: Required value`,
		}},
		{"a token", "Secret", `{"metadata": {"annotations": {"kubernetes.io/service-account.name": "a"}}, "type": "kubernetes.io/service-account-token"}`, ``, nil},
		{"a docker configuration", "Secret", `{"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{}"}}`, ``, nil},
		{"no docker configuration", "Secret", `{"type": "kubernetes.io/dockercfg"}`, ``, []string{
			`data[.dockercfg]: Required value`,
		}},
		{"a broken docker configuration", "Secret", `{"type": "kubernetes.io/dockercfg", "stringData": {".dockercfg": "{"}}`, ``, []string{
			`data[.dockercfg]: Invalid value: "<secret contents redacted>": unexpected end of JSON input`,
		}},
		{"no password", "Secret", `{"type": "kubernetes.io/basic-auth"}`, ``, []string{
			`data[username]: Required value`, `data[password]: Required value`,
		}},
		{"a password", "Secret", `{"type": "kubernetes.io/basic-auth", "stringData": {"password": ""}}`, ``, nil},
		{"no key", "Secret", `{"type": "kubernetes.io/ssh-auth", "data": {"ssh-privatekey": ""}}`, ``, []string{
			`data[ssh-privatekey]: Required value`,
		}},
		{"half a certificate", "Secret", `{"type": "kubernetes.io/tls", "data": {"tls.crt": ""}}`, ``, []string{
			`data[tls.key]: Required value`,
		}},

		{"finalizers", "Namespace", `{"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes", "orphan", "example.com/a", "x", "a b/c"]}}`, ``, []string{
			`spec.finalizers: Invalid value: "x": name is neither a standard finalizer name nor is it fully qualified`,
			`spec.finalizers: Invalid value: "a b/c": prefix part a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
		}},
		{"a phase too early", "Namespace", `{"status": {"phase": "Terminating"}}`, `{"status": {"phase": "Active"}}`, []string{
			"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
		}},
		{"a phase in time", "Namespace", `{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}}`, `{"status": {"phase": "Active"}}`, nil},
		{"a phase too late", "Namespace", `{"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Active"}}`, `{"status": {"phase": "Terminating"}}`, []string{
			"status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty",
		}},
		{"no phase", "Namespace", `{"status": {"phase": "Asleep"}}`, `{"status": {"phase": "Asleep"}}`, []string{
			`status.phase: Unsupported value: "Asleep": supported values: "Active", "Terminating"`,
		}},

		{"an event", "Event", `{"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "a"}}`, ``, nil},
		{"an event of another namespace", "Event", `{"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}}`, ``, []string{
			`involvedObject.namespace: Invalid value: "b": does not match event.namespace`,
		}},
		{"an event of the cluster", "Event", `{"metadata": {"namespace": "default"}}`, ``, nil},
		{"an event of the cluster in a namespace", "Event", `{"metadata": {"namespace": "a"}}`, ``, []string{
			`involvedObject.namespace: Invalid value: "": does not match event.namespace`,
		}},
		{"a new event", "Event", `{"metadata": {"namespace": "a"}, "involvedObject": {"namespace": "b"}, "eventTime": "2026-01-02T03:04:05.000006Z", "reportingComponent": "x/y", "reportingInstance": "i", "action": "a", "reason": "r"}`, ``, nil},
		{"a new event that says little", "Event", `{"metadata": {"namespace": "a"}, "eventTime": "2026-01-02T03:04:05.000006Z", "message": "` + big[:1025] + `"}`, ``, []string{
			`involvedObject.namespace: Invalid value: "": does not match event.namespace`,
			`reportingComponent: Required value`,
			`reportingComponent: Invalid value: "": name part must be non-empty`,
			`reportingComponent: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')`,
			`reportingInstance: Required value`,
			`action: Required value`,
			`reason: Required value`,
			`message: Invalid value: "": can have at most 1024 characters`,
		}},
		{"a bad time", "Event", `{"metadata": {"namespace": "default"}, "lastTimestamp": "yesterday", "count": 3000000000}`, ``, []string{
			`lastTimestamp: Invalid value: "yesterday": must be a date and time as in RFC 3339, such as 2006-01-02T15:04:05Z`,
			`count: Invalid value: 3000000000: must be at least -2147483648 and at most 2147483647`,
		}},

		{"a lease", "Lease", `{"spec": {"holderIdentity": "", "leaseDurationSeconds": 15, "renewTime": "2026-01-02T03:04:05.000006Z", "leaseTransitions": 0}}`, ``, nil},
		{"a lease without end", "Lease", `{"spec": {"leaseDurationSeconds": 0, "leaseTransitions": -1}}`, ``, []string{
			`spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0 and at most 2147483647`,
			`spec.leaseTransitions: Invalid value: -1: must be at least 0 and at most 2147483647`,
		}},
		{"a better holder by no strategy", "Lease", `{"spec": {"preferredHolder": "a"}}`, ``, []string{
			"spec.preferredHolder: Forbidden: may only be specified if `strategy` is defined",
		}},
		{"strategies", "Lease", `{"spec": {"strategy": "example.com/Mine", "preferredHolder": "a"}}`, ``, nil},
		{"an unknown strategy", "Lease", `{"spec": {"strategy": "Mine"}}`, ``, []string{
			`spec.strategy: Invalid value: "Mine": must be "OldestEmulationVersion" or a string that matches ^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*)/([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`,
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := objectOf(t, test.object)
			var old map[string]any
			if test.old != "" {
				old = objectOf(t, test.old)
			}
			if diff := cmp.Diff(test.want, admit(t, test.kind, object, old)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestTypedClients sends objects that typed clients marshal, including zero values.
func TestTypedClients(t *testing.T) {
	for kind, object := range map[string]any{
		"Namespace":      corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
		"ConfigMap":      corev1.ConfigMap{Data: map[string]string{"a": "b"}, BinaryData: map[string][]byte{"c": {0, 255}}},
		"Secret":         corev1.Secret{Data: map[string][]byte{"a": nil, "b": {1}}, StringData: map[string]string{"c": "d"}},
		"ServiceAccount": corev1.ServiceAccount{Secrets: []corev1.ObjectReference{{Name: "x"}}},
		"Event":          corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "default"}, Count: 1, LastTimestamp: metav1.Now()},
		"Lease":          coordinationv1.Lease{Spec: coordinationv1.LeaseSpec{RenewTime: new(metav1.NowMicro())}},
	} {
		text, err := json.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if errs := admit(t, kind, objectOf(t, string(text)), nil); errs != nil {
			t.Errorf("%s: %v\n%s", kind, errs, text)
		}
	}
}

// FuzzBuiltin runs the rules in Go on arbitrary objects: they must not panic.
func FuzzBuiltin(f *testing.F) {
	f.Add([]byte(`{"metadata": {"labels": 1, "annotations": []}, "data": {"a": 1}, "stringData": {"b": null}, "spec": {"finalizers": {}}, "status": []}`), []byte(`{"immutable": true, "data": 1}`))
	f.Add([]byte(`{"metadata": 1, "secrets": [1, null], "spec": null, "involvedObject": "x", "eventTime": "x"}`), []byte(`{}`))
	kinds := kindsByName(f)
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var old map[string]any
		_ = json.Unmarshal(b, &old)
		for kind := range kinds {
			var object map[string]any
			if json.Unmarshal(a, &object) != nil || object == nil {
				return
			}
			admit(t, kind, object, nil)
			admit(t, kind, object, old)
		}
	})
}
