package read_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"stele.dev/stele/core/run/plane/planetest"
)

// What kubectl prints of built-in kinds is as upstream's printers have it.
func TestTablesOfBuiltinKinds(t *testing.T) {
	p := planetest.NewPlane(t)
	type column struct {
		Name, Type string
		Priority   int32
	}
	name, age, created := column{"Name", "string", 0}, column{"Age", "string", 0}, column{"Created At", "date", 0}
	const (
		core   = "/api/v1/namespaces/default/"
		leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	)
	p.Must(t, 201, "POST", core+"configmaps", `{"metadata":{"name":"cm"},"data":{"a":"1"},"binaryData":{"b":"AA==","c":""}}`)
	p.Must(t, 201, "POST", core+"secrets", `{"metadata":{"name":"s"},"type":"example.com/x","data":{"a":"AA=="}}`)
	p.Must(t, 201, "POST", core+"serviceaccounts", `{"metadata":{"name":"sa"},"secrets":[{"name":"x"},{"name":"y"}]}`)
	p.Must(t, 201, "POST", leases, `{"metadata":{"name":"held"},"spec":{"holderIdentity":"me"}}`)
	p.Must(t, 201, "POST", leases, `{"metadata":{"name":"free"}}`)
	for path, want := range map[string]struct {
		columns []column
		cells   []any // what is behind the name, and before the age if that comes last
	}{
		"/api/v1/namespaces/default":  {[]column{name, {"Status", "string", 0}, age}, []any{"Active"}},
		core + "configmaps/cm":        {[]column{name, {"Data", "string", 0}, age}, []any{3.}},
		core + "secrets/s":            {[]column{name, {"Type", "string", 0}, {"Data", "string", 0}, age}, []any{"example.com/x", 1.}},
		core + "serviceaccounts/sa":   {[]column{name, age}, nil},
		leases + "/held":              {[]column{name, {"Holder", "string", 0}, age}, []any{"me"}},
		leases + "/free":              {[]column{name, {"Holder", "string", 0}, age}, []any{""}},
		planetest.RolesPath + "/view": {[]column{name, created}, nil},
		planetest.DefinitionsPath + "/widgets.example.com": {
			[]column{name, {"Scope", "string", 0}, {"Versions", "string", 0}, created, {"Group", "string", 1}, {"Kind", "string", 1}, {"ShortNames", "string", 1}, {"Established", "boolean", 1}},
			[]any{"Namespaced", "v1(storage)"},
		},
	} {
		got := planetest.Into[metav1.Table](t, p.Must(t, 200, "GET", path, "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
		var columns []column
		for _, c := range got.ColumnDefinitions {
			columns = append(columns, column{c.Name, c.Type, c.Priority})
		}
		if diff := cmp.Diff(want.columns, columns); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
		if cells := got.Rows[0].Cells; len(cells) != len(columns) || len(want.cells) > 0 && !cmp.Equal(cells[1:1+len(want.cells)], want.cells) {
			t.Errorf("%s: %v, want %v behind the name", path, cells, want.cells)
		}
	}
	definition := planetest.Into[metav1.Table](t, p.Must(t, 200, "GET", planetest.DefinitionsPath+"/widgets.example.com", "", "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"))
	if diff := cmp.Diff([]any{"example.com", "Widget", "wd", true}, definition.Rows[0].Cells[4:]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
