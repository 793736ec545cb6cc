package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// formerVersions has a folder for each version whose data directory later ones must open.
var formerVersions = filepath.Join("testdata", "former")

var (
	formerWrite   = flag.String("former.write", "", "make the folder testdata/former/NAME, which TestDataOfFormerVersionsIsServed reads")
	formerProgram = flag.String("former.program", "", "the program of which the data is; this one if empty")
)

// The files of such a folder.
const (
	formerData    = "data.tar.gz"  // the data directory
	formerAnswers = "answers.json" // what was answered then: paths and bodies
)

// A server opens the data directory of each former version: it answers now and in the past what that answered, takes writes, and
// its log verifies. A change of a format leaves these folders as they are.
func TestDataOfFormerVersionsIsServed(t *testing.T) {
	if *formerWrite != "" {
		writeFormer(t, filepath.Join(formerVersions, *formerWrite))
	}
	versions, err := os.ReadDir(formerVersions)
	require.NoError(t, err)
	require.NotEmpty(t, versions)
	for _, version := range versions {
		t.Run(version.Name(), func(t *testing.T) {
			folder, dir := filepath.Join(formerVersions, version.Name()), t.TempDir()
			require.NoError(t, unpack(filepath.Join(folder, formerData), dir))
			text, err := os.ReadFile(filepath.Join(folder, formerAnswers))
			require.NoError(t, err)
			want := map[string]any{}
			require.NoError(t, json.Unmarshal(text, &want))
			run(t, dir, 0, "log", "verify", "--data-dir", "stele-data")

			server := startServer(t, dir)
			config := clientConfig(t, dir)
			for path, body := range want {
				if diff := gocmp.Diff(body, bodyOf(t, config, path)); diff != "" {
					t.Errorf("%s (-former version +this one):\n%s", path, diff)
				}
			}
			_, err = dynamic.NewForConfigOrDie(config).Resource(databases).Namespace("default").Create(t.Context(), database("new", 1), metav1.CreateOptions{})
			require.NoError(t, err)
			require.NoError(t, server.end(syscall.SIGTERM))
			run(t, dir, 0, "log", "verify", "--data-dir", "stele-data")
		})
	}
}

// bodyOf returns the decoded answer to a get.
func bodyOf(t *testing.T, config *rest.Config, path string) (body any) {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	require.NoError(t, err)
	answer, err := client.Get(config.Host + path)
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Equal(t, 200, answer.StatusCode, "%s: %s", path, text)
	require.NoError(t, json.Unmarshal(text, &body))
	return body
}

// writeFormer makes the folder of a version. Its data has segments, a checkpoint, two policies, and objects that were changed and
// deleted.
func writeFormer(t *testing.T, folder string) {
	program, err := exec.LookPath("stele")
	if *formerProgram != "" {
		program, err = filepath.Abs(*formerProgram)
	}
	require.NoError(t, err)
	dir := t.TempDir()
	policy := filepath.Join(dir, "policy")
	require.NoError(t, os.CopyFS(policy, os.DirFS(filepath.Join("..", "..", "examples", "quickstart"))))
	server, err := serveProcess(program, dir, os.Environ(), "--policy", policy, "--segment-revisions", "20", "--log-window", "1ms", "--checkpoint-events", "30")
	require.NoError(t, err)
	require.NoError(t, server.await())
	config := clientConfig(t, dir)
	dbs := dynamic.NewForConfigOrDie(config).Resource(databases).Namespace("default")
	paths, revision := []string{}, ""
	for round := range int64(4) {
		for i := range 12 {
			o := database(fmt.Sprintf("db-%d", i), round+1)
			if round == 0 {
				o, err = dbs.Create(t.Context(), o, metav1.CreateOptions{})
			} else {
				o, err = dbs.Apply(t.Context(), o.GetName(), o, metav1.ApplyOptions{FieldManager: "former", Force: true})
			}
			require.NoError(t, err)
			revision = o.GetResourceVersion()
		}
		name := fmt.Sprint("db-", 11-round)
		require.NoError(t, dbs.Delete(t.Context(), name, metav1.DeleteOptions{}))
		paths = append(paths, "/at/"+revision+"/apis/example.com/v1/namespaces/default/databases")
		if round == 1 {
			const more = "package quickstart\n\nbundle: history: retention: kinds: \"configmaps\": records: \"24h\"\n"
			require.NoError(t, os.WriteFile(filepath.Join(policy, "more.cue"), []byte(more), 0o600))
			push := exec.Command(program, "policy", "push", policy, "--skip-plan")
			push.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "stele-data", "admin.kubeconfig"))
			out, err := push.CombinedOutput()
			require.NoError(t, err, "%s", out)
		}
	}
	for i := range 7 {
		paths = append(paths, fmt.Sprint("/apis/example.com/v1/namespaces/default/databases/db-", i))
	}
	answers := map[string]any{}
	for _, path := range paths {
		answers[path] = bodyOf(t, config, path)
	}
	require.NoError(t, server.end(syscall.SIGTERM))
	text, err := json.MarshalIndent(answers, "", " ")
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(folder, 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, formerAnswers), append(text, '\n'), 0o644))
	require.NoError(t, pack(dir, "stele-data", filepath.Join(folder, formerData)))
}

// pack writes a folder of root into an archive.
func pack(root, folder, file string) (err error) {
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	compressed, _ := gzip.NewWriterLevel(out, gzip.BestCompression)
	archive := tar.NewWriter(compressed)
	defer func() { err = errors.Join(err, archive.Close(), compressed.Close(), out.Close()) }()
	return filepath.WalkDir(filepath.Join(root, folder), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() && !entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		header, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		header.Name, header.Uid, header.Gid, header.Uname, header.Gname = filepath.ToSlash(name), 0, 0, "", ""
		if err := archive.WriteHeader(header); err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err == nil {
			_, err = archive.Write(content)
		}
		return err
	})
}

// unpack reads an archive into a folder.
func unpack(file, folder string) (err error) {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	compressed, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(folder, filepath.FromSlash(header.Name))
		if header.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = unpackFile(path, header.FileInfo().Mode().Perm(), archive)
		}
		if err != nil {
			return err
		}
	}
}

func unpackFile(path string, mode fs.FileMode, from io.Reader) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, from)
	return errors.Join(err, out.Close())
}
