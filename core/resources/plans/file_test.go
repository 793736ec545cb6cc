package plans_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
	"stele.dev/stele/core/resources/plans"
	"stele.dev/stele/policy/plan"
)

// TestAFileOfObjectsSaysWhatTheServerSays compares the plan of a server with the plan of its exported objects.
func TestAFileOfObjectsSaysWhatTheServerSays(t *testing.T) {
	s := stocked(t)
	var items []json.RawMessage
	for kind, path := range map[string]string{
		"Database": databases, "Pipeline": pipelines, "Namespace": "/api/v1/namespaces",
	} {
		var list struct {
			APIVersion string           `json:"apiVersion"`
			Items      []map[string]any `json:"items"`
		}
		require.NoError(t, json.Unmarshal(s.must(t, "admin", "GET", path, ""), &list))
		for _, item := range list.Items { // as kubectl writes them
			item["apiVersion"], item["kind"] = list.APIVersion, kind
			text, err := json.MarshalIndent(item, "", "    ")
			require.NoError(t, err)
			items = append(items, text)
		}
	}
	text, err := json.MarshalIndent(map[string]any{"apiVersion": "v1", "kind": "List", "items": items, "metadata": map[string]any{"resourceVersion": ""}}, "", "    ")
	require.NoError(t, err)
	asYAML, err := yaml.JSONToYAML(text)
	require.NoError(t, err)
	for _, edits := range [][]string{
		{"<=8192", "<=200", "maxGiB: 500", "maxGiB: 300"},
		{`owner!: =~"^[a-z.]+@corp\\.example$"`, `contact!: =~"^[a-z.]+@corp\\.example$"`},
		{"| *7", "| *14"},
	} {
		next := changed(t, edits...)
		want := s.plan(t, "admin", next, map[string]any{"samples": 5})
		require.NotEmpty(t, want.Findings)
		require.NotZero(t, want.Checked.Objects)
		for _, file := range [][]byte{text, asYAML} {
			source, err := plans.ReadObjects(bytes.NewReader(file))
			require.NoError(t, err)
			got, err := plans.Make(t.Context(), sides(t, next), plans.Options{Objects: source, Samples: 5})
			require.NoError(t, err)
			assert.Equal(t, want.Checked, got.Checked)
			assert.Equal(t, asJSON(t, want.Findings), asJSON(t, got.Findings))
			assert.Empty(t, got.Notes)
		}
	}
}

func asJSON(t *testing.T, findings []plan.Finding) string {
	t.Helper()
	text, err := json.MarshalIndent(findings, "", " ")
	require.NoError(t, err)
	return string(text)
}

// TestFilesOfObjectsThatCannotBeRead has files that must not be taken for complete ones.
func TestFilesOfObjectsThatCannotBeRead(t *testing.T) {
	a := `{"apiVersion":"v1","kind":"A","metadata":{"name":"a"}}`
	for file, want := range map[string]string{
		"":                               "it is empty",
		"---\n":                          "it is empty",
		"null":                           "it is empty",
		"{":                              "document 1",
		"No resources found":             "want an object or a list",
		"[" + a + "]":                    "want an object or a list",
		"kind: A\n":                      "it has no apiVersion or no kind",
		a + a:                            "A a is there twice",
		a + "\n{":                        "document 2",
		`{"apiVersion":"v1","kind":"A"}`: "a A has no metadata.name",
		`{"apiVersion":"v1","kind":"List","items":[` + a + `,null]}`: "document 1: item 1",
		`{"apiVersion":"v1","kind":"A","metadata":[]}`:               "document 1",
		`{"apiVersion":"a/b/c","kind":"A","metadata":{"name":"a"}}`:  "unexpected GroupVersion string",
	} {
		_, err := plans.ReadObjects(strings.NewReader(file))
		assert.ErrorContains(t, err, want, "%s", file)
	}
	_, err := plans.ReadObjects(strings.NewReader(`{"apiVersion":"v1","kind":"List","items":[]}`))
	assert.NoError(t, err, "a list without objects is complete")
}

// TestObjectsThatAreNotThoseOfThePolicy has objects that cannot be stored under the older policy.
func TestObjectsThatAreNotThoseOfThePolicy(t *testing.T) {
	make := func(file string) (*plan.Plan, error) {
		source, err := plans.ReadObjects(strings.NewReader(file))
		require.NoError(t, err)
		return plans.Make(t.Context(), sides(t, changed(t, "<=8192", "<=200")), plans.Options{Objects: source})
	}
	p, err := make(`{"apiVersion":"apps/v1","kind":"Tower","metadata":{"name":"a"}}`)
	require.NoError(t, err)
	assert.Equal(t, []string{"The objects in the file have 1 of Tower.apps, which the older policy does not have: they were not tried."}, p.Notes)
	_, err = make(`{"apiVersion":"data.corp.example/v1","kind":"Database","metadata":{"name":"a"}}`)
	assert.ErrorContains(t, err, "databases.data.corp.example a has no metadata.namespace")
	_, err = make(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a","namespace":"b"}}`)
	assert.ErrorContains(t, err, "namespaces b/a has a metadata.namespace")
}
