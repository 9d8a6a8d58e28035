// Command probe is the one file of the image that setup runs privileged to
// find out whether the engine can. It prints the inotify limits of the machine
// it runs on, or waits when told to.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) == 2 && os.Args[1] == "wait" {
		stop := make(chan os.Signal, 1)
		signal.Notify(stop, syscall.SIGTERM, os.Interrupt)
		select {
		case <-stop:
		case <-time.After(time.Minute): // do not outlive an interrupted set-up for long
		}
		return
	}
	fmt.Println(limit("max_user_instances"), limit("max_user_watches"))
}

func limit(name string) string {
	value, err := os.ReadFile("/proc/sys/fs/inotify/" + name)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return string(bytes.TrimSpace(value))
}
