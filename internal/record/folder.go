package record

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/flatline-chaos/flatline/internal/safely"
	"github.com/flatline-chaos/flatline/pkg/judge"
)

// Files in the folder of a run.
const (
	timelineFile = "timeline.jsonl"
	verdictFile  = "run.json"
)

// maxVerdict is how many bytes run.json may have.
const maxVerdict = 16 << 20

// Open reads the timeline in the folder of one run and has it judged.
func Open(dir string) (*Record, error) {
	return read(source{file: filepath.Join(dir, timelineFile)}, &sync.Mutex{})
}

// Write writes what was judged of a run as run.json into its folder. What is there is
// replaced.
func Write(dir string, run *judge.Run) error {
	data, err := json.MarshalIndent(run, "", "  ")
	if err != nil {
		return fmt.Errorf("writing %s: %w", verdictFile, err)
	}
	return safely.Replace(filepath.Join(dir, verdictFile), append(data, '\n'))
}

// Verdict reads what was judged of a run when it was judged last. It is nil if that does not
// lie beside the record: dir may be a timeline by itself.
func Verdict(dir string) (*judge.Run, error) {
	name := filepath.Join(dir, verdictFile)
	data, err := safely.Read(name, maxVerdict)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var run judge.Run
	if err := json.Unmarshal(data, &run); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &run, nil
}
