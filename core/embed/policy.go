package embed

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/policy/bundles"
	"stele.dev/stele/policy/compile"
	"stele.dev/stele/schemas"
)

// newest keeps the newest result of compiling, because tests start many control planes with one policy. It is safe for concurrent use.
type newest struct{ kept atomic.Pointer[result] }

type result struct {
	of       [sha256.Size]byte
	compiled *compile.Result // which nobody changes
}

var compiled newest

// compile is for [plane.Config].
func (n *newest) compile(_ context.Context, source *bundles.Source) (*compile.Result, schemas.Diagnostics, error) {
	of := source.Digest()
	if kept := n.kept.Load(); kept != nil && kept.of == of {
		return kept.compiled, nil, nil
	}
	compiled, diags := compile.Bundle(source)
	if len(diags) == 0 {
		n.kept.Store(&result{of, compiled})
	}
	return compiled, diags, nil
}

// push creates a policy by the API.
func push(ctx context.Context, config *rest.Config, spec activation.Spec) error {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	kind := schema.GroupVersionResource{Group: activation.Group, Version: activation.Version, Resource: activation.Plural}
	text, err := json.Marshal(&activation.Policy{TypeMeta: metav1.TypeMeta{APIVersion: kind.GroupVersion().String(), Kind: activation.Kind}, Spec: spec})
	if err != nil {
		return err
	}
	o := new(unstructured.Unstructured)
	if err := o.UnmarshalJSON(text); err != nil {
		return err
	}
	_, err = client.Resource(kind).Create(ctx, o, metav1.CreateOptions{})
	return err
}

// definitions returns a bundle with the CustomResourceDefinitions of files.
func definitions(files fs.FS) (*bundles.Source, error) {
	found := map[string]json.RawMessage{}
	groups := []string{}
	err := fs.WalkDir(files, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, path.Ext(name)) {
			return err
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return err
		}
		if err := addDefinitions(found, &groups, text); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		return nil, errors.New("the files of CRDs have no CustomResourceDefinition")
	}
	slices.Sort(groups)
	team, err := json.Marshal(map[string]any{"contact": "-", "groups": slices.Compact(groups), "namespaces": []string{"*"}, "crds": found})
	if err != nil {
		return nil, err
	}
	const module = "module: \"embedded.example\"\nlanguage: version: \"v0.17.0\"\n"
	text := "package embedded\n\nimport \"stele.dev/policy\"\n\nbundle: policy.#Bundle & {\n\tcluster: \"embedded\"\n\tteams: embedded: " + string(team) + "\n}\n" // JSON is CUE
	return &bundles.Source{Package: ".", Files: []bundles.File{{Path: "bundle.cue", Data: []byte(text)}, {Path: bundles.ModuleFile, Data: []byte(module)}}}, nil
}

// addDefinitions adds the CustomResourceDefinitions of a file.
func addDefinitions(found map[string]json.RawMessage, groups *[]string, text []byte) error {
	documents := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		var o unstructured.Unstructured
		switch err := documents.Decode(&o.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case o.GetKind() != "CustomResourceDefinition" || !strings.HasPrefix(o.GetAPIVersion(), "apiextensions.k8s.io/"):
			continue
		case found[o.GetName()] != nil:
			return fmt.Errorf("there are two CustomResourceDefinitions %s", o.GetName())
		}
		delete(o.Object, "status")
		definition, err := o.MarshalJSON()
		if err != nil {
			return err
		}
		found[o.GetName()] = definition
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		*groups = append(*groups, group)
	}
}
