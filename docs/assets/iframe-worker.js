// The search of a page that is opened from the file system. Browsers start no worker there, so the theme's search runs in a
// hidden frame of the page instead. The theme asks for `IFrameWorker` by this name.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(script) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      document.body.append(frame)
      this.inside = frame.contentWindow
      this.inside.document.open()
      this.inside.document.write("<!doctype html><body></body>")
      this.inside.document.close()
      // What the script posts is for us, and not for its own window.
      this.inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
      this.loaded = new Promise((resolve, reject) => {
        const element = this.inside.document.createElement("script")
        element.src = script
        element.onload = resolve
        element.onerror = () => reject(new Error(`${script} was not loaded`))
        this.inside.document.body.append(element)
      })
    }

    postMessage(data) {
      this.loaded.then(() => this.inside.dispatchEvent(new MessageEvent("message", { data })))
    }
  }
}
