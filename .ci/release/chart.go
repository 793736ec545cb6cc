package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// The chart, and the manifests that are made of it, in the source.
const (
	chartFolder   = "charts/stele"
	manifestsFile = "charts/manifests/stele.yaml"
)

// manifestsHead begins the manifests. Pods of the chart keep the strictest of the Pod Security Standards.
const manifestsHead = `# Made by "make manifests" of charts/stele, with its default values; change those. Before it is applied:
# - set the image, and the addresses of etcd, and
# - create the Secrets stele-keys and stele-etcd in the namespace stele: docs/INSTALL.md.
apiVersion: v1
kind: Namespace
metadata:
  name: stele
  labels:
    pod-security.kubernetes.io/enforce: restricted
`

// writeManifests renders the chart with its default values into the plain manifests. With only it compares.
func writeManifests(root string, only bool) error {
	c, err := loader.LoadDir(filepath.Join(root, chartFolder))
	if err != nil {
		return err
	}
	text, err := render(c, nil)
	if err != nil {
		return err
	}
	if err := checkObjects(text); err != nil {
		return err
	}
	if err := tryValues(c); err != nil {
		return err
	}
	file := filepath.Join(root, manifestsFile)
	former, err := os.ReadFile(file)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	case bytes.Equal(former, text):
		return nil
	case only:
		return fmt.Errorf("%s is not what %s renders; run `make manifests`", manifestsFile, chartFolder)
	}
	return os.WriteFile(file, text, 0o644)
}

// render returns the objects of the chart, in the order of its files.
func render(c *chart.Chart, values map[string]any) ([]byte, error) {
	release := common.ReleaseOptions{Name: "stele", Namespace: "stele", Revision: 1, IsInstall: true}
	all, err := util.ToRenderValues(c, values, release, common.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Engine{Strict: true}.Render(c, all)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range rendered {
		if path.Ext(name) == ".yaml" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	text := bytes.NewBufferString(manifestsHead)
	for _, name := range names {
		if body := strings.TrimSpace(rendered[name]); body != "" {
			fmt.Fprintf(text, "---\n%s\n", body)
		}
	}
	return text.Bytes(), nil
}

// separator divides the documents of a YAML file.
var separator = regexp.MustCompile(`(?m)^---\n`)

// checkObjects checks that the manifests have only objects and fields that Kubernetes knows.
func checkObjects(text []byte) error {
	for _, document := range separator.Split(string(text), -1) {
		var head metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(document), &head); err != nil {
			return fmt.Errorf("%w:\n%s", err, document)
		}
		into, ok := map[string]any{
			"v1/Namespace": &corev1.Namespace{}, "v1/Service": &corev1.Service{}, "v1/ServiceAccount": &corev1.ServiceAccount{},
			"apps/v1/StatefulSet": &appsv1.StatefulSet{}, "policy/v1/PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		}[head.APIVersion+"/"+head.Kind]
		if !ok {
			return fmt.Errorf("the chart has a %s %s, which is not checked yet", head.APIVersion, head.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(document), into); err != nil {
			return fmt.Errorf("%s: %w", head.Kind, err)
		}
	}
	return nil
}

// tryValues renders the chart with all values set, and with values that must be refused.
func tryValues(c *chart.Chart) error {
	set := map[string]any{
		"replicas": 1, "bucket": "s3://b", "priorityClassName": "100", "args": []any{"--max-seats=100"}, "hosts": []any{"api.example.com"},
		"env":   []any{map[string]any{"name": "AWS_REGION", "value": "eu"}},
		"image": map[string]any{"repository": "r/stele", "digest": "sha256:" + strings.Repeat("0", 64)}, "etcd": map[string]any{"tlsSecret": ""},
		"storage": map[string]any{"storageClassName": "true"}, "keysSecret": "1",
		"volumes":      []any{map[string]any{"name": "more", "secret": map[string]any{"secretName": "more"}}},
		"volumeMounts": []any{map[string]any{"name": "more", "mountPath": "/etc/stele/more"}}, "service": map[string]any{"annotations": map[string]any{"a": "b"}},
		"podAnnotations": map[string]any{"a": "b"}, "podLabels": map[string]any{"a": "b"}, "nodeSelector": map[string]any{"a": "b"},
		"tolerations": []any{map[string]any{"key": "a", "operator": "Exists"}}, "affinity": map[string]any{"nodeAffinity": map[string]any{}},
		"imagePullSecrets": []any{map[string]any{"name": "s"}},
	}
	text, err := render(c, set)
	if err != nil {
		return err
	}
	if err := checkObjects(text); err != nil {
		return fmt.Errorf("with all values set: %w", err)
	}
	for _, wrong := range []map[string]any{{"replica": 3}, {"etcd": map[string]any{"endpoints": []any{}}}, {"replicas": 0}, {"keysSecret": ""}, {"shutdownDelay": "2m"}} {
		if _, err := render(c, wrong); err == nil {
			return fmt.Errorf("the chart accepts the values %v", wrong)
		}
	}
	return nil
}

// chartVersion matches the versions of the chart and of the program in Chart.yaml.
var chartVersion = regexp.MustCompile(`(?m)^(version|appVersion): .*$`)

// chart writes the chart as an archive for Helm, with the version of the release, and returns its name.
func (b *build) chart() (name string, err error) {
	name = fmt.Sprintf("stele-%s.tgz", b.version) // as Helm names it
	file, err := b.create(name)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	zip := gzip.NewWriter(file)
	w := newTarWriter(zip, b.time)
	folder := filepath.Join(b.root, chartFolder)
	err = filepath.WalkDir(folder, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		if relative == "Chart.yaml" {
			text = chartVersion.ReplaceAll(text, []byte("$1: "+b.version))
		}
		return w.bytes(path.Join("stele", filepath.ToSlash(relative)), text, 0o644, 0)
	})
	return name, errors.Join(err, w.Close(), zip.Close())
}

// checkChart checks that Helm can read and render the chart of a release.
func (b *build) checkChart() error {
	name := fmt.Sprintf("stele-%s.tgz", b.version)
	c, err := loader.LoadFile(filepath.Join(b.out, name))
	if err != nil {
		return err
	}
	text, err := render(c, nil)
	if err != nil {
		return err
	}
	if image := "image: registry.example.com/stele:" + b.version + "\n"; !bytes.Contains(text, []byte(image)) {
		return fmt.Errorf("%s does not run %s", name, image)
	}
	return checkObjects(text)
}
