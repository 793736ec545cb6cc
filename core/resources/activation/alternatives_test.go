package activation_test

import (
	"strings"
	"testing"

	"stele.dev/stele/core/run/plane/planetest"
)

// Defaults of an alternative stay behind when a client applies another one, of which it knows
// nothing: what it does not send is not its mistake.
func TestDefaultsOfTheFormerAlternativeAreNoMistake(t *testing.T) {
	merge := []string{"Content-Type", "application/merge-patch+json"}
	p := planetest.NewPlane(t)
	const union = `store: {type!: "s3", bucket!: string} | {type!: "disk", path!: string, size: *5 | int}`
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, "owner?:", union+"\n\t\towner?:", 1), nil))
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"store":{"type":"disk","path":"/x"}}}`)
	other := `{"spec":{"store":{"type":"s3","path":null,"bucket":"b"}}}`

	a := p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w?fieldValidation=Strict&dryRun=All", other, merge...)
	if a.Field("spec", "store", "size") != nil {
		t.Errorf("it became %s", a)
	}
	if warnings := a.Header.Values("Warning"); len(warnings) != 1 || !strings.Contains(warnings[0], `unknown field \"spec.store.size\"`) {
		t.Errorf("it warns of %q", warnings)
	}
	for _, size := range []string{"6", "null, \"more\": 1"} {
		p.Must(t, 422, "PATCH", planetest.WidgetsPath+"/w?fieldValidation=Strict", strings.Replace(other, `"type"`, `"size":`+size+`,"type"`, 1), merge...)
	}
	p.Must(t, 200, "PUT", planetest.WidgetsPath+"/w?fieldValidation=Strict",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","resourceVersion":"`+a.Field("metadata", "resourceVersion").(string)+`"},"spec":{"size":1,"store":{"type":"s3","bucket":"b","size":5}}}`)
	p.Must(t, 400, "POST", planetest.WidgetsPath+"?fieldValidation=Strict",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"v"},"spec":{"size":1,"store":{"type":"s3","bucket":"b","size":5}}}`)
}

// The patched object is no part of the answer where it holds secrets: who may patch need not
// be who may read.
func TestPatchesShowNoSecrets(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1), nil))
	p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"token":"hunter2"}}`)
	a := p.Must(t, 422, "PATCH", planetest.WidgetsPath+"/w?fieldValidation=Strict", `{"spec":{"bogus":1}}`, "Content-Type", "application/merge-patch+json")
	if text := a.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, `unknown field \"spec.bogus\"`) {
		t.Errorf("it says %s", text)
	}
}

// An object that contradicts a default is stored without it, and can be read and written back.
func TestContradictedDefaultsAreLeftOut(t *testing.T) {
	p := planetest.NewPlane(t)
	p.Push(t, planetest.PolicyBody(t, strings.Replace(planetest.Bundle, "owner?:", "least: *1 | int\n\t\tmost: least\n\t\towner?:", 1), nil))
	a := p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"most":2}}`)
	if a.Field("spec", "least") != nil || a.Field("spec", "most") != 2.0 {
		t.Errorf("it became %s", a)
	}
	p.Must(t, 200, "PUT", planetest.WidgetsPath+"/w", string(p.Must(t, 200, "GET", planetest.WidgetsPath+"/w", "").Body))
	p.Must(t, 200, "PATCH", planetest.WidgetsPath+"/w", `{"spec":{"most":3}}`, "Content-Type", "application/merge-patch+json")
	p.Must(t, 422, "PATCH", planetest.WidgetsPath+"/w", `{"spec":{"least":1}}`, "Content-Type", "application/merge-patch+json")
	a = p.Must(t, 201, "POST", planetest.WidgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"v"},"spec":{"size":1}}`)
	if a.Field("spec", "least") != 1.0 || a.Field("spec", "most") != 1.0 {
		t.Errorf("it became %s", a)
	}
}
