package activation_test

import (
	"bytes"
	"encoding/json"
	"runtime"
	"testing"

	"stele.dev/stele/core/resources/activation"
	"stele.dev/stele/core/run/plane/planetest"
	"stele.dev/stele/projections/policies"
)

// A request of a few hundred kilobytes can name one part so often that its file has gigabytes. It is refused
// before the file is put together.
func TestAPartThatIsNamedManyTimesTakesNoMemory(t *testing.T) {
	p := planetest.NewPlane(t)
	part := bytes.Repeat([]byte("// x\n"), policies.ChunkSize/5)
	encoded := func(v any) string {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	upload := &activation.Upload{Parts: [][]byte{part}}
	upload.APIVersion, upload.Kind = "policy.stele.dev/v1", activation.UploadKind
	p.Must(t, 201, "POST", planetest.PoliciesPath+"/"+activation.Parts, encoded(upload))
	digests := make([]string, 5000)
	for i := range digests {
		digests[i] = policies.DigestOf(part).String()
	}
	push := &activation.Policy{Spec: activation.Spec{Package: ".", Files: []activation.File{{Path: "bundle.cue", Parts: digests}}}}
	push.APIVersion, push.Kind = "policy.stele.dev/v1", activation.Kind
	body := encoded(push)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	p.Must(t, 413, "POST", planetest.PoliciesPath, body)
	runtime.ReadMemStats(&after)
	if took := (after.TotalAlloc - before.TotalAlloc) >> 20; took > 64 {
		t.Errorf("the answer took %d MiB", took)
	}
}
