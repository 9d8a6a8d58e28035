package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// stubDocker puts a docker client on PATH that knows some images and a registry in some mood.
// It returns the folder of its state: what it was asked is in calls.
func stubDocker(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	script = "#!/bin/sh\nstub=" + dir + "\necho \"$*\" >>$stub/calls\n" + script
	if err := os.WriteFile(filepath.Join(dir, "docker"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return dir
}

const imageStub = `
case "$1 $2" in
"image inspect")
  grep -qxF "$5" $stub/present && echo sha256:$5 && exit
  echo "Error: No such image: $5" >&2; exit 1;;
"image ls")
  case "$*" in *label=dev.flatline.recipe*) ;; *) exit 1;; esac # a name alone is anybody's to give
  sed -n 's|^flatline/node:||p' $stub/present;;
"pull "*)
  case $(cat $stub/registry) in
  answers) echo "v1: Pulling from $2"; echo "$2" >>$stub/present;;
  trickles) echo "v1: Pulling from $2"; sleep $(cat $stub/seconds); echo done; echo "$2" >>$stub/present;;
  silent) exec sleep 3600;;
  refuses) echo "Error response from daemon: dial tcp: lookup registry on 10.0.0.1:53: no such host" >&2; exit 1;;
  esac;;
esac
`

func TestChooseImage(t *testing.T) {
	for name, test := range map[string]struct {
		present  string // images, one a line
		registry string
		choice   Choice
		want     Image
		noImage  bool   // the error is ErrNoImage
		err      string // in the error
		pulls    int    // -1 is any number
	}{
		"override present": {
			present: "mine:1\nflatline/node:v1.37.2", choice: Choice{Override: "mine:1"},
			want: Image{"mine:1", "override", "sha256:mine:1"},
		},
		"override pulled": {
			registry: "answers", choice: Choice{Override: "mine:1"},
			want: Image{"mine:1", "override (pulled)", "sha256:mine:1"}, pulls: 1,
		},
		"override not to be had": {
			present: "flatline/node:v1.37.2", registry: "refuses", choice: Choice{Override: "mine:1"},
			err: "node image mine:1 is not present, and pulling it failed: exit status 1: Error response from daemon: dial tcp", pulls: 1,
		},
		"built": {
			present: "flatline/node:v1.37.2-abc\nkind:1", choice: Choice{Built: "flatline/node:v1.37.2-abc", Default: "kind:1"},
			want: Image{"flatline/node:v1.37.2-abc", "built", "sha256:flatline/node:v1.37.2-abc"},
		},
		"recipe not built": {
			present: "flatline/node:v1.33.1\nkind:1", choice: Choice{Built: "flatline/node:v1.37.2-abc", Default: "kind:1"},
			want: Image{"kind:1", "default", "sha256:kind:1"},
		},
		"no recipe: the highest version": {
			present: "flatline/node:v1.9.1\nflatline/node:v1.37.2-a\nflatline/node:v1.37.2-b\nflatline/node:test\nflatline/node:v1.33.13", choice: Choice{Default: "kind:1"},
			want: Image{"flatline/node:v1.37.2-a", "built", "sha256:flatline/node:v1.37.2-a"},
		},
		"default present": {
			present: "kind:1", choice: Choice{Default: "kind:1"},
			want: Image{"kind:1", "default", "sha256:kind:1"},
		},
		"default pulled": {
			registry: "answers", choice: Choice{Default: "kind:1"},
			want: Image{"kind:1", "default (pulled)", "sha256:kind:1"}, pulls: 1,
		},
		"registry silent": { // on a slow machine the pull is cut off before it has begun
			registry: "silent", choice: Choice{Default: "kind:1", PullDeadline: 100 * time.Millisecond},
			noImage: true, err: "no answer from the registry within 100ms", pulls: -1,
		},
		"registry refuses": {
			registry: "refuses", choice: Choice{Default: "kind:1"},
			noImage: true, err: "no such host", pulls: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := stubDocker(t, imageStub)
			for file, content := range map[string]string{"present": test.present + "\n", "registry": test.registry} {
				if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := ChooseImage(t.Context(), test.choice)
			if got != test.want {
				t.Errorf("image %+v, want %+v", got, test.want)
			}
			if wanted := test.err != "" || test.noImage; wanted != (err != nil) {
				t.Fatalf("error %v, want %q", err, test.err)
			}
			if err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %q does not contain %q", err, test.err)
			}
			if got := errors.Is(err, ErrNoImage); got != test.noImage {
				t.Errorf("ErrNoImage is %t, want %t: %v", got, test.noImage, err)
			}
			calls, _ := os.ReadFile(filepath.Join(dir, "calls"))
			if n := strings.Count("\n"+string(calls), "\npull "); n != test.pulls && test.pulls >= 0 {
				t.Errorf("%d pulls, want %d", n, test.pulls)
			}
		})
	}
}

// The pull takes twice the time that the registry has to answer. Where that is too short
// for the first line of a docker client, the machine is slow: then it is doubled.
func TestASlowPullThatHasBegunGoesOn(t *testing.T) {
	dir := stubDocker(t, imageStub)
	for deadline := 500 * time.Millisecond; ; deadline *= 2 {
		for file, content := range map[string]string{"present": "", "registry": "trickles", "seconds": fmt.Sprint(2 * deadline.Seconds())} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := ChooseImage(t.Context(), Choice{Default: "kind:1", PullDeadline: deadline})
		if err == nil {
			if want := (Image{"kind:1", "default (pulled)", "sha256:kind:1"}); got != want {
				t.Errorf("image %+v, want %+v", got, want)
			}
			return
		}
		if !errors.Is(err, ErrNoImage) || deadline > time.Minute {
			t.Fatalf("with %s to answer: %v", deadline, err)
		}
	}
}

// An engine that does not answer is not an image that does not exist.
func TestChooseImageWithoutEngine(t *testing.T) {
	stubDocker(t, "echo 'Cannot connect to the Docker daemon. Is the docker daemon running?' >&2; exit 1")
	_, err := ChooseImage(t.Context(), Choice{Default: "kind:1"})
	if err == nil || errors.Is(err, ErrNoImage) || !strings.Contains(err.Error(), "Cannot connect to the Docker daemon") {
		t.Errorf("error %v", err)
	}
}
