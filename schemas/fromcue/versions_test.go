package fromcue_test

import (
	"strings"
	"testing"

	"stele.dev/stele/schemas"
)

// The versions have the same meaning with other words, order and positions.
func TestVersionsOfOneForm(t *testing.T) {
	text := strings.Replace(widgetKind, "\tversions: v1: {", `	versions: v1beta1: {
		// Another comment.
		#schema: #Same
		served: false
		deprecated: "use v1"
	}
	versions: v1: {`, 1) + `
#Same: {
	status?: ready?: bool
	// How it is to be.
	spec!: {parts?: [...string], color: *"blue" | "red", size!: int & <=1000}
}
`
	k, diags := compileKind(t, "widgets.example.com", strings.Replace(text, `storageVersion: "v1"`, `storageVersion: "v1beta1"`, 1))
	if diags != nil {
		t.Fatal(diags)
	}
	if len(k.Versions) != 2 || k.StorageVersion != "v1beta1" {
		t.Fatalf("%+v", k)
	}
	for _, v := range k.Versions {
		if v.Served != (v.Name == "v1") {
			t.Errorf("%s is served: %v", v.Name, v.Served)
		}
	}
}

func TestADifferenceIsNamed(t *testing.T) {
	base := `size!: int & >0, ports?: [...{name!: string, port!: int}], limits?: [string]: int, color: *"blue" | "red"`
	form := func(spec string) *schemas.Node { return mustCompile(t, "#schema: {spec: {"+spec+"}}") }
	for path, replace := range map[string][2]string{
		"spec.size":          {"int & >0", "int & >1"},
		"spec.free":          {"color:", "free?: {...}, color:"},
		"spec.ports[*].port": {"port!: int", "port?: int"},
		"spec.ports[*].host": {"name!: string", "name!: string, host?: string"},
		"spec.limits[*]":     {"[string]: int", "[string]: int & <5"},
		"spec.color":         {`*"blue" | "red"`, `"blue" | *"red"`},
		"spec":               {"size!: int", "..., size!: int"},
		"":                   {"", ""},
	} {
		other := strings.Replace(base, replace[0], replace[1], 1)
		got, differ := schemas.Difference(form(base), form(other))
		if differ != (path != "") || differ && got != path {
			t.Errorf("%s: %q, %v; want %q", other, got, differ, path)
		}
		if back, again := schemas.Difference(form(other), form(base)); again != differ || differ && back != got {
			t.Errorf("%s: the other way round %q, %v", other, back, again)
		}
	}
}
