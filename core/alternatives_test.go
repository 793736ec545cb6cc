package core_test

import (
	"strings"
	"testing"
)

// Defaults of an alternative stay behind when a client applies another one, of which it knows
// nothing: what it does not send is not its mistake.
func TestDefaultsOfTheFormerAlternativeAreNoMistake(t *testing.T) {
	merge := []string{"Content-Type", "application/merge-patch+json"}
	p := newPlane(t)
	const union = `store: {type!: "s3", bucket!: string} | {type!: "disk", path!: string, size: *5 | int}`
	p.push(t, policyBody(t, strings.Replace(bundle, "owner?:", union+"\n\t\towner?:", 1), nil))
	p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"store":{"type":"disk","path":"/x"}}}`)
	other := `{"spec":{"store":{"type":"s3","path":null,"bucket":"b"}}}`

	a := p.must(t, 200, "PATCH", widgetsPath+"/w?fieldValidation=Strict&dryRun=All", other, merge...)
	if a.field("spec", "store", "size") != nil {
		t.Errorf("it became %s", a)
	}
	if warnings := a.header.Values("Warning"); len(warnings) != 1 || !strings.Contains(warnings[0], `unknown field \"spec.store.size\"`) {
		t.Errorf("it warns of %q", warnings)
	}
	for _, size := range []string{"6", "null, \"more\": 1"} {
		p.must(t, 422, "PATCH", widgetsPath+"/w?fieldValidation=Strict", strings.Replace(other, `"type"`, `"size":`+size+`,"type"`, 1), merge...)
	}
	p.must(t, 200, "PUT", widgetsPath+"/w?fieldValidation=Strict",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","resourceVersion":"`+a.field("metadata", "resourceVersion").(string)+`"},"spec":{"size":1,"store":{"type":"s3","bucket":"b","size":5}}}`)
	p.must(t, 400, "POST", widgetsPath+"?fieldValidation=Strict",
		`{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"v"},"spec":{"size":1,"store":{"type":"s3","bucket":"b","size":5}}}`)
}

// The patched object is no part of the answer where it holds secrets: who may patch need not
// be who may read.
func TestPatchesShowNoSecrets(t *testing.T) {
	p := newPlane(t)
	p.push(t, policyBody(t, strings.Replace(bundle, "owner?:", "token?: string @stele(sensitive)\n\t\towner?:", 1), nil))
	p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"token":"hunter2"}}`)
	a := p.must(t, 422, "PATCH", widgetsPath+"/w?fieldValidation=Strict", `{"spec":{"bogus":1}}`, "Content-Type", "application/merge-patch+json")
	if text := a.String(); strings.Contains(text, "hunter2") || !strings.Contains(text, `unknown field \"spec.bogus\"`) {
		t.Errorf("it says %s", text)
	}
}

// An object that contradicts a default is stored without it, and can be read and written back.
func TestContradictedDefaultsAreLeftOut(t *testing.T) {
	p := newPlane(t)
	p.push(t, policyBody(t, strings.Replace(bundle, "owner?:", "least: *1 | int\n\t\tmost: least\n\t\towner?:", 1), nil))
	a := p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"size":1,"most":2}}`)
	if a.field("spec", "least") != nil || a.field("spec", "most") != 2.0 {
		t.Errorf("it became %s", a)
	}
	p.must(t, 200, "PUT", widgetsPath+"/w", string(p.must(t, 200, "GET", widgetsPath+"/w", "").body))
	p.must(t, 200, "PATCH", widgetsPath+"/w", `{"spec":{"most":3}}`, "Content-Type", "application/merge-patch+json")
	p.must(t, 422, "PATCH", widgetsPath+"/w", `{"spec":{"least":1}}`, "Content-Type", "application/merge-patch+json")
	a = p.must(t, 201, "POST", widgetsPath, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"v"},"spec":{"size":1}}`)
	if a.field("spec", "least") != 1.0 || a.field("spec", "most") != 1.0 {
		t.Errorf("it became %s", a)
	}
}
